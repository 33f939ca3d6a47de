package pgserver

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// dieWithParent makes the kernel stop the server (SIGINT: fast shutdown) when the thread that started it ends, so that no
// orphan keeps the data folder locked after a kill -9 of ours. (prctl(2), PR_SET_PDEATHSIG.)
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }

// killTree kills a process and its children. The parent is stopped first so that it can't start others meanwhile.
func killTree(pid int) bool {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return false
	}
	for _, child := range childrenOf(pid) {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	return syscall.Kill(pid, syscall.SIGKILL) == nil
}

func childrenOf(parent int) []int {
	var children []int
	for _, pid := range processes() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has gone
		}
		// The fields behind the name, which is in parentheses and may hold anything: state, ppid. (proc(5).)
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 1 && string(fields[1]) == strconv.Itoa(parent) {
			children = append(children, pid)
		}
	}
	return children
}

// usesFolder tells whether any process works in a data folder, which every server process does. known is false where
// that can't be told.
func usesFolder(dir string) (used, known bool) {
	for _, pid := range processes() {
		cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		if err == nil && cwd == dir {
			return true, true
		}
	}
	return false, true
}

func processes() []int {
	paths, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	pids := make([]int, 0, len(paths))
	for _, path := range paths {
		if pid, err := strconv.Atoi(filepath.Base(path)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
