package deliver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// staleAfter is the age from which a file in tmp/ is a leftover of a process that died. (maildir(5))
const staleAfter = 36 * time.Hour

// drop is one file on its way into one mailbox.
type drop struct {
	*target
	folder string // <domain>/<local part>, below the root
	base   string // the final name in new/
	tmp    string // the name in tmp/, below the root
	prefix int64  // the octets of the fields that are added for this recipient
}

// maildir delivers to Maildirs. It writes and syncs all files first, then waits for the permit, then renames.
func (d *Deliverer) maildir(ctx context.Context, a *attempt, route *Route, targets []*target) {
	ctx, span := d.tracer.Start(ctx, "deliver.maildir", trace.WithAttributes(
		attribute.String("rohrpost.message.id", a.MessageID),
		attribute.Int("rohrpost.recipients", len(targets)),
	))
	defer span.End()
	a.remotes = append(a.remotes, route.Maildir.Path)
	if err := d.mailboxes(ctx, a, route.Maildir.Path, targets); err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, "not delivered to every mailbox")
		d.log.WarnContext(ctx, "maildir delivery failed", "message_id", a.MessageID, "path", route.Maildir.Path, "error", err)
	}
}

// mailboxes sets the result of every target. The error is the first trouble that was met, for the log.
func (d *Deliverer) mailboxes(ctx context.Context, a *attempt, base string, targets []*target) (first error) {
	fail := func(t *target, err error) {
		t.set(temporary, diskReply(err))
		if first == nil {
			first = err
		}
	}
	root, err := openRoot(base)
	if err != nil {
		all(targets, temporary, diskReply(err))
		return err
	}
	defer func() { _ = root.Close() }() // a folder that was only read
	var drops []*drop
	defer func() {
		for _, f := range drops {
			_ = root.Remove(f.tmp) // gone where it was renamed
		}
	}()

	var source *drop
	var written []*drop
	for _, t := range targets {
		f := newDrop(a, t)
		present, err := d.prepare(root, f)
		if err != nil {
			fail(t, err)
			continue
		}
		if present {
			t.set(delivered, newReply(250, "2.0.0", "Delivered by an earlier attempt"))
			continue
		}
		drops = append(drops, f)
		if err := f.write(ctx, a, root, source); errors.Is(err, errContent) {
			a.spoil(targets, err)
			return err
		} else if err != nil {
			fail(t, err)
			continue
		}
		if source == nil {
			source = f
		}
		written = append(written, f)
	}
	if len(written) == 0 {
		return first
	}
	if err := a.permit.wait(ctx); err != nil {
		for _, f := range written {
			f.set(untried, cutShort())
		}
		return err
	}
	for _, f := range written {
		if err := f.rename(root); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// openRoot opens the folder of a route, made where it is missing. No name below it can lead out of it.
func openRoot(base string) (*os.Root, error) {
	root, err := os.OpenRoot(base)
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(base, 0o700); err == nil {
			root, err = os.OpenRoot(base)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("opening the mail folder: %w", err)
	}
	return root, nil
}

// newDrop names the file of a recipient. The name derives from the message and the recipient, so that another attempt
// overwrites instead of delivering twice.
func newDrop(a *attempt, t *target) *drop {
	return &drop{target: t, folder: Mailbox(t.address), base: fileName(a.MessageID, t.address)}
}

// prepare makes the mailbox's folders, sweeps its tmp/ and tells whether the message has been delivered and moved on
// by a reader already.
func (d *Deliverer) prepare(root *os.Root, f *drop) (present bool, err error) {
	if err := makeMailbox(root, f.folder); err != nil {
		return false, err
	}
	d.sweep(root, path.Join(f.folder, "tmp"))
	names, err := list(root, path.Join(f.folder, "cur"))
	if err != nil {
		return false, err
	}
	for _, name := range names {
		// Behind the name stand the flags, as in `:2,S`; where a colon is not possible, another mark.
		if len(name) >= len(f.base) && name[:len(f.base)] == f.base {
			return true, nil
		}
	}
	return false, nil
}

// makeMailbox makes the folders that are missing, and makes them last.
func makeMailbox(root *os.Root, folder string) error {
	made := false
	for _, sub := range []string{"tmp", "new", "cur"} {
		dir := path.Join(folder, sub)
		if _, err := root.Stat(dir); err == nil {
			continue
		} else if !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("looking at the mailbox: %w", err)
		}
		if err := root.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("making the mailbox: %w", err)
		}
		made = true
	}
	if !made {
		return nil
	}
	for _, up := range []string{folder, path.Dir(folder), "."} {
		if err := syncDir(root, up); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes what crashed processes left in tmp/. It is best effort: a leftover does no harm.
func (d *Deliverer) sweep(root *os.Root, dir string) {
	names, err := list(root, dir)
	if err != nil {
		return
	}
	for _, name := range names {
		info, err := root.Lstat(path.Join(dir, name))
		if err == nil && info.Mode().IsRegular() && d.now().Sub(info.ModTime()) > staleAfter {
			_ = root.Remove(path.Join(dir, name)) // another process may have been faster
		}
	}
}

func list(root *os.Root, dir string) ([]string, error) {
	f, err := root.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("opening a folder: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("reading a folder: %w", err)
	}
	return names, nil
}

// write writes and syncs the file in tmp/. Its content comes from the spool or, where source is not nil, from the file
// of another recipient.
func (f *drop) write(ctx context.Context, a *attempt, root *os.Root, source *drop) (err error) {
	head, err := finalFields(a.Envelope, f.address)
	if err != nil {
		return err
	}
	f.prefix = int64(len(head))
	// A process that was taken for dead may still be writing: every attempt has its own name in tmp/.
	f.tmp = path.Join(f.folder, "tmp", f.base+"."+randomName())
	file, err := root.OpenFile(f.tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("creating a file: %w", err)
	}
	defer func() {
		if closeErr := file.Close(); err == nil && closeErr != nil {
			err = fmt.Errorf("closing the file: %w", closeErr)
		}
	}()
	if _, err := io.WriteString(file, head); err != nil {
		return fmt.Errorf("writing the file: %w", err)
	}
	if err := f.fill(ctx, a, root, source, file); err != nil {
		return err
	}
	a.permit.start(ctx) // the answer comes while the disk works
	if err := file.Sync(); err != nil {
		return fmt.Errorf("syncing the file: %w", err)
	}
	return nil
}

// fill copies the content. The error has errContent in its chain where it is the content that can't be read.
func (f *drop) fill(ctx context.Context, a *attempt, root *os.Root, source *drop, to io.Writer) error {
	if source != nil {
		from, err := root.Open(source.tmp)
		if err != nil {
			return fmt.Errorf("opening the first copy: %w", err)
		}
		defer func() { _ = from.Close() }() // only read
		if _, err := from.Seek(source.prefix, io.SeekStart); err != nil {
			return fmt.Errorf("reading the first copy: %w", err)
		}
		if _, err := io.Copy(to, from); err != nil {
			return fmt.Errorf("copying the first copy: %w", err)
		}
		return nil
	}
	content, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // only read
	if _, err := io.Copy(to, content); err != nil {
		return fmt.Errorf("copying content: %w", err)
	}
	return nil
}

// rename passes the point of no return and sets the result.
func (f *drop) rename(root *os.Root) error {
	to := path.Join(f.folder, "new", f.base)
	if err := root.Rename(f.tmp, to); err != nil {
		f.set(temporary, diskReply(err))
		return fmt.Errorf("renaming: %w", err)
	}
	if err := syncDir(root, path.Dir(to)); err != nil {
		// The message is there, but may not be after a crash of the machine.
		f.set(unknown, newReply(451, "4.3.0", "The mailbox's folder could not be synced"))
		return err
	}
	f.set(delivered, newReply(250, "2.0.0", "Delivered to the mailbox"))
	return nil
}

func syncDir(root *os.Root, dir string) error {
	f, err := root.Open(filepath.FromSlash(dir))
	if err != nil {
		return fmt.Errorf("opening a folder: %w", err)
	}
	err = f.Sync()
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("syncing a folder: %w", err)
	}
	return nil
}

// FinalEdits are the edits that final delivery into a Maildir adds after those of the task: Delivered-To, then
// Return-Path, which ends up as the first field. (RFC 5321, section 4.4.)
func FinalEdits(envelope *mailv1.Envelope, recipient string) []*mailv1.Edit {
	field := func(name, value string) *mailv1.Edit {
		return &mailv1.Edit{Kind: &mailv1.Edit_Prepend{Prepend: &mailv1.HeaderField{Name: name, Value: value}}}
	}
	return []*mailv1.Edit{
		field("Delivered-To", recipient),
		field("Return-Path", "<"+envelope.GetSender()+">"),
	}
}

// finalFields writes the final edits as they stand at the start of the file.
func finalFields(envelope *mailv1.Envelope, recipient string) (string, error) {
	head, err := Apply(emptyReader{}, FinalEdits(envelope, recipient))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(head)
	return string(text), err
}

type emptyReader struct{}

func (emptyReader) Read([]byte) (int, error) { return 0, io.EOF }
