package gateway

import (
	"os"
	"slices"
	"sync"
	"time"
)

// fileCache is what was made of some files. They are looked at again when it is asked for, once a second at most. It may
// be used by many goroutines.
type fileCache[T any] struct {
	files []string
	load  func() (T, error)
	warn  func(error) // is told of a load that failed, once for each state of the files

	mu     sync.Mutex
	value  T
	seen   []fileState
	failed bool // the last load did
	looked time.Time
}

// fileState is what shows that a file has changed.
type fileState struct {
	modified time.Time
	size     int64
}

const lookEvery = time.Second

// newFileCache loads for the first time.
func newFileCache[T any](files []string, load func() (T, error), warn func(error)) (*fileCache[T], error) {
	c := &fileCache[T]{files: files, load: load, warn: warn, looked: time.Now()}
	c.seen = c.look()
	var err error
	c.value, err = load()
	return c, err
}

// get returns the latest that could be loaded.
func (c *fileCache[T]) get() T {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.looked) < lookEvery {
		return c.value
	}
	c.looked = now
	seen := c.look()
	same := slices.Equal(seen, c.seen)
	if same && !c.failed {
		return c.value
	}
	// What failed is tried again though nothing has changed: the process may have had no file left to open.
	value, err := c.load()
	if err == nil {
		c.value = value
	} else if !same || !c.failed {
		c.warn(err)
	}
	c.seen, c.failed = seen, err != nil
	return c.value
}

func (c *fileCache[T]) look() []fileState {
	states := make([]fileState, len(c.files))
	for i, file := range c.files {
		if info, err := os.Stat(file); err == nil {
			states[i] = fileState{info.ModTime(), info.Size()}
		}
	}
	return states
}
