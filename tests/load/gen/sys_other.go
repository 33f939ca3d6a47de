//go:build !linux

package gen

import "syscall"

func lateBind(string, string, syscall.RawConn) error { return nil }
