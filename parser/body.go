package parser

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"slices"
	"strings"
)

// body is what is made of the octets of a leaf while they pass: decoded, counted, hashed, and kept as far as they are
// needed later.
// One is used after the other: a reader has one.
type body struct {
	node    *node
	decoder decoder
	hash    hash.Hash
	limit   int    // how many decoded octets are kept
	kept    []byte // those of this leaf and of others before it
	from    int    // where those of this leaf start
	extract *extraction

	isText     bool // whether lines and NUL mean something
	nul        bool // whether there was a NUL
	bareCR, cr bool // whether there was a CR without LF, and whether a CR was last

	visible bool // whether there is more than white space in it
	isPlain bool // whether it may hold a uuencoded file
	files   uuFinder

	// What decoder and tap are made of.
	base64 base64Decoder
	quoted quotedPrintable
	uu     uudecoder
	lines  lineDecoder
	tap    func([]byte)
	sink   func([]byte)
}

func (b *body) write(p []byte) {
	if b.isText {
		b.look(p)
	}
	b.decoder.write(p, b.sink)
}

// look notes what readers of a text take for its end, or for the end of a line (RFC 2046, 4.1.1; RFC 5322, 2.3).
func (b *body) look(p []byte) {
	b.nul = b.nul || bytes.IndexByte(p, 0) >= 0
	if b.cr && p[0] != '\n' && p[0] != '\r' {
		b.bareCR = true
	}
	for rest := p; !b.bareCR; {
		i := bytes.IndexByte(rest, '\r')
		if i < 0 || i == len(rest)-1 {
			break
		}
		if rest = rest[i+1:]; rest[0] != '\n' && rest[0] != '\r' {
			b.bareCR = true
		}
	}
	b.cr = p[len(p)-1] == '\r'
}

// ambiguous notes what was seen.
func (b *body) ambiguous(r *reader, where place) {
	if b.nul {
		r.once("ambiguous_nul", severe, where, "a NUL in a text")
	}
	if b.bareCR {
		r.once("ambiguous_bare_cr", severe, where, "a CR without LF in a text")
	}
	if b.files.found {
		r.once("ambiguous_uuencode", severe, where, "a uuencoded file in a text")
	}
}

func (b *body) decoded(p []byte) {
	n := b.node
	n.part.Size += int64(len(p))
	b.hash.Write(p)
	b.visible = b.visible || len(bytes.TrimSpace(p)) > 0
	if b.isPlain {
		b.files.write(p)
	}
	if b.extract != nil {
		b.extract.write(p)
	}
	if left := b.limit - (len(b.kept) - b.from); left > 0 {
		keep := min(len(p), left)
		if len(b.kept)+keep > cap(b.kept) {
			// append lets large slices grow by a quarter only, and so allocates five times what is kept.
			b.kept = slices.Grow(b.kept, max(keep, min(cap(b.kept), left)))
		}
		b.kept = append(b.kept, p[:keep]...)
		p = p[keep:]
	}
	n.cut = n.cut || len(p) > 0
}

// keep gives the leaf what is kept of it.
func (b *body) keep() { b.node.kept = b.kept[b.from:len(b.kept):len(b.kept)] }

// forget forgets it.
func (b *body) forget() { b.kept = b.kept[:b.from] }

// leaf reads a body that has no parts, unless it turns out to be an encoded message.
func (r *reader) leaf(s *source, sec section, n *node) delimiter {
	b := r.newBody(n)
	end := sec.end
	s.open(sec.body, b.tap)
	if !sec.isCut {
		end = s.next(sec.body)
	}
	s.shut(end.end)
	n.part.RawSize = int64(max(end.end-sec.body, 0))
	if kind := b.decoder.close(b.sink); kind != "" {
		severity := warning
		if strings.HasPrefix(kind, "ambiguous_") {
			severity = severe
		}
		r.defect(kind, severity, r.place(s, n.part.Path, sec.body), "the body is not quite %s", n.part.Encoding)
	}
	b.keep()
	b.ambiguous(r, r.place(s, n.part.Path, sec.body))
	n.part.Sha256 = b.hash.Sum(n.sum[:0])
	if r.late && end.level < 0 && !s.nested {
		n.part.Unparsed, n.part.Sha256 = true, nil // the time was up before the end
	}
	if r.isEncodedMessage(n) {
		r.encodedMessage(n)
	}
	return end
}

// newBody makes the reader's body ready for a leaf.
func (r *reader) newBody(n *node) *body {
	b := &r.body
	if b.hash == nil {
		b.hash, b.tap, b.sink = sha256.New(), b.write, b.decoded
	}
	b.hash.Reset()
	b.node, b.limit, b.extract, b.from = n, r.keeps(n), nil, len(b.kept)
	b.isText, b.nul, b.bareCR, b.cr = strings.HasPrefix(n.part.Type, "text/") && decoding(n.part.Encoding) != isBase64, false, false, false
	b.isPlain, b.visible = n.part.Type == plainType, false
	b.files.reset()
	b.decoder = b.newDecoder(n.part.Encoding)
	if r.extract != nil && r.extract.path == n.part.Path {
		b.extract, r.extract.found = r.extract, true
	}
	return b
}

func (b *body) newDecoder(encoding string) decoder {
	switch decoding(encoding) {
	case isBase64:
		b.base64 = base64Decoder{}
		return &b.base64
	case isQuotedPrintable:
		b.quoted = quotedPrintable{}
		return b.byLine(&b.quoted)
	case isUuencode:
		b.uu = uudecoder{}
		return b.byLine(&b.uu)
	}
	return asItStands{}
}

func (b *body) byLine(reader lineReader) decoder {
	b.lines = lineDecoder{reader: reader, rest: b.lines.rest[:0]}
	return &b.lines
}

// keeps tells how many octets of a decoded body are needed later.
func (r *reader) keeps(n *node) int {
	switch {
	case r.keepAll:
		return int(^uint(0) >> 1)
	case r.isEncodedMessage(n):
		return max(int(r.limits.DecodedBytes)-r.decodedBytes, 0)
	case n.inside > 0:
		return 0 // the texts and the report are those of the message itself
	case isReport(n.part.Type):
		if r.found != nil {
			return 0
		}
		r.found = n
		return reportBytes
	case n.part.Type == plainType || n.part.Type == htmlType:
		// A character in UTF-8 takes at least a quarter of what it takes in any charset.
		return r.keepsText(n, 4*int(r.limits.TextBytes))
	}
	return 0
}

// keepsText keeps the texts of each type that are shown, up to the limit all together, and the first that has a file name.
func (r *reader) keepsText(n *node, limit int) int {
	slot := &r.texts[0]
	if n.part.Type == htmlType {
		slot = &r.texts[1]
	}
	switch {
	case n.part.Disposition == "attachment":
		return 0
	case !isNamed(n):
		for _, other := range slot.shown {
			limit -= len(other.kept)
		}
		slot.shown = append(slot.shown, n)
		return limit
	case slot.named == nil && len(slot.shown) == 0:
		slot.named = n
		return limit
	}
	return 0
}

// isNamed tells whether a text has a file name, so that it is rather an attachment. A message that is nothing else may
// have one.
func isNamed(n *node) bool { return n.part.Filename != "" && n.depth > 1 }

func (r *reader) isEncodedMessage(n *node) bool {
	return n.isMessage() && !isIdentity(n.part.Encoding)
}

// encodedMessage reads a nested message from its decoded body.
func (r *reader) encodedMessage(n *node) {
	data := n.kept
	n.kept, r.body.kept = nil, nil // others would make it larger
	r.decodedBytes += len(data)
	if n.cut {
		r.once("decoded_bytes_limit", severe, n.where, "encoded messages of more than %s", r.limits.DecodedBytes)
		n.part.Unparsed = true
		return
	}
	if r.tooDeep(n) {
		return
	}
	s := r.source(data, true)
	r.entity(s, 0, r.newChild(n, 1, plainType))
}
