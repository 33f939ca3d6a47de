//go:build !linux

package rohrtest

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
