package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// Nice lowers the priority of this process, for good: n is from 0, which leaves it as it is, to 19, as nice(1) counts. A process
// that has a lower one already keeps it. Elsewhere than on Linux nothing happens. It is called by a program's main.
//
// Linux keeps a priority for each thread, which those that it starts inherit. So it goes on until it finds none to lower: none of
// those that may have started another meanwhile is left then.
func Nice(n int) error {
	for lowered := true; lowered; {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("lowering the priority: %w", err)
		}
		lowered = false
		for _, task := range tasks {
			id, err := strconv.Atoi(task.Name())
			if err != nil {
				continue
			}
			now, err := niceOf(id)
			if err == nil && now < n {
				lowered = true
				err = syscall.Setpriority(syscall.PRIO_PROCESS, id, n)
			}
			if err != nil && !errors.Is(err, syscall.ESRCH) { // else it has ended
				return fmt.Errorf("lowering the priority: %w", err)
			}
		}
	}
	return nil
}

// niceOf is how nice a thread is. The system call counts from 40 downwards, so that no result looks like an error.
// (getpriority(2).)
func niceOf(thread int) (int, error) {
	v, err := syscall.Getpriority(syscall.PRIO_PROCESS, thread)
	return 20 - v, err
}
