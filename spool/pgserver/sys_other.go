//go:build !linux

package pgserver

import "syscall"

// dieWithParent does nothing: the system can't do it. A server that outlived a kill -9 of ours is found by the next start.
func dieWithParent(*syscall.SysProcAttr) {}

// killTree can't tell the children here.
func killTree(int) bool { return false }

func usesFolder(string) (used, known bool) { return false, false }
