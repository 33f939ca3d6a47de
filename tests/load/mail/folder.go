package mail

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// maxLine is the longest line that our gateway takes; mail with longer ones is no load but a test of its refusal.
const maxLine = 64 << 10

// Folder wraps every mail of a folder and the folders in it. Files that are empty, have a NUL or a line of more than
// 64 KiB are left out: servers refuse them for what they are. It is an error when none is left.
func Folder(dir string) ([]*Mail, error) {
	var mails []*Mail
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path) //nolint:gosec // the caller names the folder
		if err != nil {
			return err
		}
		if sendable(content) {
			mails = append(mails, Wrap(content))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading mails: %w", err)
	}
	if len(mails) == 0 {
		return nil, fmt.Errorf("reading mails: %s has none that can be sent", dir)
	}
	return mails, nil
}

func sendable(content []byte) bool {
	if len(content) == 0 || bytes.IndexByte(content, 0) >= 0 {
		return false
	}
	for line := range bytes.SplitSeq(content, []byte("\n")) {
		if len(line) > maxLine {
			return false
		}
	}
	return true
}
