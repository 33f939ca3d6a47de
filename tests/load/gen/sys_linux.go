package gen

import "syscall"

// ipBindAddressNoPort lets the kernel choose the port at connect, where it knows the target: then a port serves many targets.
const ipBindAddressNoPort = 24

func lateBind(_, _ string, conn syscall.RawConn) error {
	var err error
	controlErr := conn.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, ipBindAddressNoPort, 1)
	})
	if controlErr != nil {
		return controlErr
	}
	return err
}
