package process

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// Hangups makes SIGHUP ask for the configuration to be loaded again, in place of ending the process: the channel gets a
// value then. Where SIGHUP tells that the process's terminal was closed it still means the end, and the returned context
// ends by it, unless the process was started with SIGHUP ignored, as by nohup. The returned function must be called.
func Hangups(ctx context.Context, logger *slog.Logger) (context.Context, <-chan struct{}, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	ends := hasTerminal() && !signal.Ignored(syscall.SIGHUP)
	received := make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGHUP)
	hangups := make(chan struct{}, 1) // one that has not been seen stands for any number
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done(): // from here on SIGHUP means nothing: the process is stopping
				return
			case <-received:
			}
			if ends && !hasTerminal() {
				logger.InfoContext(ctx, "stopping: the terminal was closed")
				cancel()
				return
			}
			select {
			case hangups <- struct{}{}:
			default:
			}
		}
	}()
	return ctx, hangups, func() {
		cancel()
		<-done
		signal.Stop(received)
	}
}

// hasTerminal tells whether the process has a controlling terminal. It loses it when that is closed, before SIGHUP comes.
func hasTerminal() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	_ = tty.Close() // nothing was written
	return true
}
