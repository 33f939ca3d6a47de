package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rohrpost/rohrpost/services"
	"github.com/rohrpost/rohrpost/services/rohrtest"
)

// In one process the parser's threads give way to the others (promise P6).
func TestParserGivesWay(t *testing.T) {
	rohrtest.Start(t)
	want := services.DefaultConfig().Parser.Nice
	if mostNice(t) < want {
		t.Errorf("no thread has a priority as low as %d", want)
	}
}

// mostNice is the lowest priority of a thread of this process. (proc(5): nice is the 19th field of stat.)
func mostNice(t *testing.T) int {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/stat")
	if err != nil {
		t.Fatal(err)
	}
	most := -20
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		nice, err := strconv.Atoi(strings.Fields(rest)[19-3])
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, nice)
	}
	return most
}
