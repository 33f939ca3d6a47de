package worker

import (
	"sync"
	"time"

	spoolv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/spool/v1"
)

const (
	// stockFor is how long the jobs that wait at a worker are to keep it busy: longer than the next ones travel, and than Go's
	// scheduler lets a busy process wait before it looks at its sockets (10 ms).
	stockFor = 12 * time.Millisecond
	// maxStock bounds how many may wait, as a multiple of those that are done at once: who holds many more than others gets many
	// more of few jobs, and takes them with it when it dies.
	maxStock = 2
)

// stock is how many jobs a worker holds beside those that it is doing, so that no core is idle while the next ones travel, and
// so that several travel together: more where its jobs are short.
type stock struct {
	capacity int

	mu    sync.Mutex
	pace  time.Duration // about how long a job takes; 0 while none has been done
	level int
}

func newStock(stage spoolv1.Stage, capacity int) *stock {
	if stage == spoolv1.Stage_STAGE_DELIVER {
		return &stock{} // its jobs take long, and are better left to others who are free
	}
	return &stock{capacity: capacity, level: capacity}
}

// learn takes note of how long a job took, and tells whether that changes the stock.
func (s *stock) learn(took time.Duration) bool {
	if s.capacity == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pace == 0 {
		s.pace = took
	}
	s.pace += (took - s.pace) / 16
	was := s.level
	s.level = s.levelAt(s.pace)
	return s.level != was
}

// levelAt is the stock at a pace: the capacity, or more where that would be too little.
func (s *stock) levelAt(pace time.Duration) int {
	if pace < stockFor {
		return maxStock * s.capacity
	}
	return s.capacity
}

// jobs is how many may wait.
func (s *stock) jobs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.level
}
