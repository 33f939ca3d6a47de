//go:build unix

package mime

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/emersion/go-message"
	"github.com/jhillyerd/enmime/v2"

	"github.com/rohrpost/rohrpost/parser"
	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// reading is what two readers of a mail must agree on, so that none of them sees a file that the other does not: the
// bodies that are no text (texts are converted), by type and hash, and the words of the text.
type reading struct {
	bodies []string
	text   string
}

func bodyKey(mediaType string, sum [sha256.Size]byte) string {
	return fmt.Sprintf("%s %.4x", strings.ToLower(mediaType), sum)
}

func isText(mediaType string) bool {
	return mediaType == "" || strings.HasPrefix(strings.ToLower(mediaType), "text/")
}

// ours looks into no nested message, as the other readers do not.
func ours(content []byte) reading {
	m := parser.Parse(content, parser.Limits{TextBytes: 1 << 20, ResultBytes: 512 << 10})
	out := reading{text: words(m.GetText())}
	var walk func(p *mailv1.Part)
	walk = func(p *mailv1.Part) {
		if strings.HasPrefix(p.GetType(), "multipart/") {
			for _, c := range p.GetParts() {
				walk(c)
			}
		} else if !isText(p.GetType()) && p.GetSize() > 0 {
			out.bodies = append(out.bodies, bodyKey(p.GetType(), [sha256.Size]byte(p.GetSha256())))
		}
	}
	walk(m.GetParts()[0])
	slices.Sort(out.bodies)
	return out
}

// words are those of a text, without the rules that enmime puts between texts it joins.
func words(s string) string {
	list := slices.DeleteFunc(strings.Fields(s), func(w string) bool { return w == "--" })
	return strings.Join(list, " ")
}

func enmimes(content []byte) (reading, error) {
	e, err := enmime.ReadEnvelope(bytes.NewReader(content))
	if err != nil {
		return reading{}, err
	}
	out := reading{text: words(e.Text)}
	e.Root.DepthMatchAll(func(p *enmime.Part) bool {
		if p.FirstChild == nil && !isText(p.ContentType) && len(p.Content) > 0 && !strings.HasPrefix(p.ContentType, "multipart/") {
			out.bodies = append(out.bodies, bodyKey(p.ContentType, sha256.Sum256(p.Content)))
		}
		return false
	})
	slices.Sort(out.bodies)
	return out, nil
}

func goMessages(content []byte) (reading, error) {
	var out reading
	entity, err := message.Read(bytes.NewReader(content))
	if err != nil && !message.IsUnknownCharset(err) && !message.IsUnknownEncoding(err) {
		return out, err
	}
	err = entity.Walk(func(_ []int, e *message.Entity, err error) error {
		if err != nil && !message.IsUnknownCharset(err) && !message.IsUnknownEncoding(err) {
			return err
		}
		mediaType, _, err := e.Header.ContentType()
		if err != nil {
			return err
		}
		if strings.HasPrefix(mediaType, "multipart/") {
			if e.MultipartReader() == nil {
				return errors.New("a multipart without boundary")
			}
			return nil
		}
		data, err := io.ReadAll(e.Body)
		if err == nil && !isText(mediaType) && len(data) > 0 {
			out.bodies = append(out.bodies, bodyKey(mediaType, sha256.Sum256(data)))
		}
		return err
	})
	slices.Sort(out.bodies)
	return out, err
}

// TestAgainstOthers reads the corpus with three readers. Of the mails that another reads without error, the bodies and for
// enmime the words of the text agree at least as often as when it was last reviewed; what differs is logged.
func TestAgainstOthers(t *testing.T) {
	mails := corpus(t)
	for _, other := range []struct {
		name          string
		read          func([]byte) (reading, error)
		text          bool
		bodies, texts int // how many agree of a hundred
	}{
		{"enmime", enmimes, true, 97, 75},        // it leaves texts out that have no header section or no part, and all but one of a multipart/alternative
		{"go-message", goMessages, false, 98, 0}, // it does not know what the parts of a digest are
	} {
		t.Run(other.name, func(t *testing.T) {
			all, bodies, texts := 0, 0, 0
			for _, name := range slices.Sorted(maps.Keys(mails)) {
				theirs, err := other.read(mails[name])
				if err != nil {
					continue
				}
				all++
				mine := ours(mails[name])
				if slices.Equal(mine.bodies, theirs.bodies) {
					bodies++
				} else {
					t.Logf("%s: bodies\n  ours  %v\n  their %v", name, mine.bodies, theirs.bodies)
				}
				if mine.text == theirs.text {
					texts++
				} else if other.text {
					t.Logf("%s: text\n  ours  %.120q\n  their %.120q", name, mine.text, theirs.text)
				}
			}
			t.Logf("score against %s: of %d mails, bodies agree in %d, text in %d", other.name, all, bodies, texts)
			if bodies*100 < all*other.bodies || texts*100 < all*other.texts {
				t.Errorf("want at least %d %% and %d %%", other.bodies, other.texts)
			}
		})
	}
}
