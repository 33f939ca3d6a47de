package filter

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/emersion/go-msgauth/dkim"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// checkContent reads the content once: it verifies the DKIM signatures (RFC 6376) and looks for Authentication-Results
// fields that were forged in our name. An error means that the content could not be read.
func (f *Filter) checkContent(ctx context.Context, in Input) (found []authResult, forged []string, err error) {
	ctx, span := f.tracer.Start(ctx, "filter.dkim", trace.WithAttributes(messageID(in)))
	defer span.End()
	defer func() { recordError(span, err) }()

	content, err := in.Content()
	if err != nil {
		return nil, nil, fmt.Errorf("opening the content: %w", err)
	}
	deadline, cancel := context.WithTimeout(ctx, f.cfg.DKIM.Timeout)
	defer cancel()
	src := &source{r: content, done: deadline.Done()}
	stop := context.AfterFunc(deadline, func() { _ = content.Close() })
	defer func() {
		if stop() {
			_ = content.Close()
		}
	}()

	body := bufio.NewReader(src)
	head, headErr := readHeader(body, int64(f.cfg.DKIM.MaxHeader))
	if err := src.failure(); err != nil {
		return nil, nil, fmt.Errorf("reading the header section: %w", err)
	}
	fields := parseFields(head)
	forged = oddlyForged(fields)
	if headErr != nil || src.late() { // what was not looked at may be forged
		forged = everyForged
	}
	if !f.cfg.DKIM.Enabled {
		return nil, forged, nil
	}
	found = f.dkim(deadline, in, fields, body, headErr)
	if err := src.failure(); err != nil {
		return nil, nil, fmt.Errorf("reading the content: %w", err)
	}
	span.SetAttributes(
		attribute.String("rohrpost.filter.result", summary(found)),
		attribute.Int("rohrpost.filter.signatures", len(named(fields, "DKIM-Signature"))))
	return found, forged, nil
}

// dkim verifies the signatures; ctx ends with the check's deadline.
func (f *Filter) dkim(ctx context.Context, in Input, fields []field, body io.Reader, headErr error) []authResult {
	signatures := named(fields, "DKIM-Signature")
	one := func(result, detail string) []authResult {
		return []authResult{{method: "dkim", result: result, detail: detail}}
	}
	switch {
	case in.Envelope.GetReception().GetClientIp() == "":
		return one(resultNone, "made by Rohrpost itself, there is no client")
	case ctx.Err() != nil:
		return one(resultTempError, "reading the content took too long")
	case headErr != nil:
		return one(resultPermError, headErr.Error())
	case len(signatures) == 0:
		return one(resultNone, "no signature")
	case tooDear(fields, signatures[:min(len(signatures), f.cfg.DKIM.MaxSignatures)]):
		return one(resultPermError, "the header section is too costly to verify")
	}
	verified, err := dkim.VerifyWithOptions(io.MultiReader(headerOf(fields), body), &dkim.VerifyOptions{
		LookupTXT:        f.lookupKey(ctx),
		MaxVerifications: f.cfg.DKIM.MaxSignatures,
	})
	tooMany := errors.Is(err, dkim.ErrTooManySignatures)
	switch {
	case ctx.Err() != nil:
		return one(resultTempError, "the look-ups took too long")
	case err != nil && !tooMany:
		return one(resultPermError, err.Error())
	case len(verified) > len(signatures): // it counted otherwise than we do, so that nobody knows which is which
		return one(resultPermError, "the signatures cannot be told apart")
	}
	var results []authResult
	for i, v := range verified {
		results = append(results, signatureResult(signatures[i], v.Err))
	}
	if tooMany {
		results = append(results, one(resultPolicy,
			fmt.Sprintf("%d more signatures were not looked at", len(signatures)-len(verified)))...)
	}
	return results
}

// headerOf is the header section that the library gets: the fields alone. It would take a line without a colon, or with
// odd white space before its name, for a field, and so count other signatures than we do.
func headerOf(fields []field) io.Reader {
	var head bytes.Buffer
	for _, f := range fields {
		head.WriteString(f.raw)
	}
	head.WriteString("\r\n")
	return &head
}

const (
	// maxFoldCost bounds the sum over all fields of octets times lines: the library copies a field at each of its lines.
	// One of 5 000 recipients, a line each, is below it.
	maxFoldCost = 1 << 30
	// maxPickCost bounds the fields that a signature names times those that there are: the library looks at all of them
	// for each name.
	maxPickCost = 1 << 20
	// maxKeyRecord is the longest key record that is used, in octets. That of an RSA key of 16 384 bits fits; to verify
	// with a much longer one would take seconds.
	maxKeyRecord = 4096
)

// tooDear tells whether verifying takes time out of proportion to the length of the header section.
func tooDear(fields, signatures []field) bool {
	cost := 0
	for _, f := range fields {
		cost += len(f.raw) * f.lines
	}
	for _, s := range signatures {
		if strings.Count(s.value, ":")*len(fields) > maxPickCost {
			return true
		}
	}
	return cost > maxFoldCost
}

var errKeyRecord = errors.New("the key record is too long")

// lookupKey looks up key records. The library asks for marks of its own on what is temporary.
func (f *Filter) lookupKey(ctx context.Context) func(string) ([]string, error) {
	return func(name string) ([]string, error) {
		txts, err := f.lookup.LookupTXT(ctx, name)
		for _, txt := range txts {
			if len(txt) > maxKeyRecord {
				return nil, errKeyRecord
			}
		}
		return txts, err
	}
}

// signatureResult says how one signature went, in the words of RFC 8601, section 2.7.1.
func signatureResult(signature field, err error) authResult {
	tags := signatureTags(signature)
	res := authResult{method: "dkim", result: resultPass}
	// RFC 8601, section 2.7.1 (header.d, header.s); RFC 6008 (header.b, which tells signatures apart).
	for _, p := range []property{{"header.d", tags["d"]}, {"header.s", tags["s"]}, {"header.b", first(tags["b"], 8)}} {
		if p.value != "" {
			res.props = append(res.props, p)
		}
	}
	if err == nil {
		return res
	}
	res.detail = strings.TrimPrefix(err.Error(), "dkim: ")
	_, partial := tags["l"]
	switch {
	case dkim.IsTempFail(err):
		res.result, res.detail = resultTempError, "the key could not be looked up"
	case dkim.IsPermFail(err):
		res.result = resultPermError
	case partial: // it may have verified, but covers a part of the body only (RFC 6376, section 8.2)
		res.result = resultPolicy
	default:
		res.result = resultFail
	}
	return res
}

// signatureTags reads the tag list of a signature (RFC 6376, section 3.2), all white space removed.
func signatureTags(signature field) map[string]string {
	tags := map[string]string{}
	for tag := range strings.SplitSeq(strings.Join(strings.Fields(signature.value), ""), ";") {
		if name, value, ok := strings.Cut(tag, "="); ok {
			tags[name] = value
		}
	}
	return tags
}

func first(s string, n int) string { return s[:min(n, len(s))] }

// source ends the content with EOF where reading it fails or its time is up, and remembers why: the library leaves
// goroutines behind where its reader returns an error.
type source struct {
	r    io.Reader
	done <-chan struct{} // closed when time is up
	err  error
}

func (s *source) Read(p []byte) (int, error) {
	if s.err != nil || s.late() {
		return 0, io.EOF
	}
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
		err = io.EOF
	}
	return n, err
}

func (s *source) late() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// failure is what went wrong with reading, but for the end of the check's time.
func (s *source) failure() error {
	if s.late() {
		return nil
	}
	return s.err
}
