package parser

import (
	"crypto/sha256"
	"strconv"
	"strings"

	mailv1 "github.com/rohrpost/rohrpost/proto/gen/rohrpost/mail/v1"
)

// The media types that mean something to the structure.
const (
	plainType   = "text/plain"
	htmlType    = "text/html"
	messageType = "message/rfc822"
)

// node is a part while it is read.
type node struct {
	part     *mailv1.Part
	parent   *node
	depth    int
	inside   int // how many messages it is nested in
	fields   []field
	where    place
	children []*node
	few      [4]*node // room for the children of most
	boundary string
	sum      *[sha256.Size]byte // room for the hash
	// kept is the decoded body, as far as the reader keeps it.
	kept []byte
	// isShown is whether it is a text of the message.
	isShown bool
	// cut is whether the decoded body has more than was kept.
	cut bool
}

// newRoot makes the root of the content.
func (r *reader) newRoot() *node {
	n := r.newNode(&r.result.root)
	n.part.Path, n.part.Type, n.depth = "1", plainType, 1
	return n
}

// newNode makes a node of a part.
func (r *reader) newNode(room *partRoom) *node {
	r.parts++
	if len(r.nodes) == 0 {
		r.nodes = make([]node, len(r.fewNodes))
	}
	n := &r.nodes[0]
	r.nodes = r.nodes[1:]
	n.part, n.sum, n.children = &room.part, &room.sum, n.few[:0]
	return n
}

// newChild makes a part of a part.
func (r *reader) newChild(parent *node, number int, defaultType string) *node {
	n := r.newNode(r.partRooms.next())
	path := append(append(r.scratch[:0], parent.part.Path...), '.')
	r.scratch = strconv.AppendInt(path, int64(number), 10)
	n.part.Path, n.part.Type = r.strs.add(r.scratch), defaultType
	n.parent, n.depth, n.inside = parent, parent.depth+1, parent.inside
	if parent.isMessage() {
		n.inside++
	}
	parent.children = append(parent.children, n)
	return n
}

// adopt puts the children into the result.
func (n *node) adopt() {
	if len(n.children) == 0 {
		return
	}
	n.part.Parts = make([]*mailv1.Part, len(n.children))
	for i, child := range n.children {
		n.part.Parts[i] = child.part
	}
}

func (n *node) isMultipart() bool { return strings.HasPrefix(n.part.Type, "multipart/") }

// isMessage tells whether the body is a message of its own (RFC 2046, 5.2.1; RFC 6532, 3.7).
func (n *node) isMessage() bool {
	return n.part.Type == messageType || n.part.Type == "message/global" || n.part.Type == "message/news"
}

// entity reads the entity at pos, header section first, and returns the delimiter that ended it.
func (r *reader) entity(s *source, pos int, n *node) delimiter {
	sec := r.section(s, pos, n.part.Path)
	if sec.unended {
		r.defect("missing_body_separator", info, r.place(s, n.part.Path, s.end()), "the content ends inside the header section")
	}
	if len(sec.fields) == 0 && (n.parent == nil || n.parent.isMessage()) {
		r.lateHeader(s, sec, pos, n.part.Path)
	}
	n.fields, n.where = sec.fields, r.place(s, n.part.Path, pos)
	n.part.Headers = r.headers(s, sec.fields, n.part.Path)
	n.part.HeaderOffset, n.part.BodyOffset = int64(pos), int64(sec.body)
	r.describe(s, n)
	if n.parent == nil {
		r.fields(s, n)
	}
	n.fields = nil // they are slices of a window that moves on
	end := r.inside(s, sec, n)
	n.adopt()
	return end
}

// inside reads the body of an entity.
func (r *reader) inside(s *source, sec section, n *node) delimiter {
	multipart := n.isMultipart()
	if !multipart && (!n.isMessage() || !isIdentity(n.part.Encoding) || sec.isCut || r.tooDeep(n)) {
		return r.leaf(s, sec, n)
	}
	extract := r.extract != nil && r.extract.path == n.part.Path
	if extract {
		r.extract.found = true
		s.open(sec.body, r.extract.write)
	}
	var end delimiter
	if multipart {
		end = r.multipart(s, sec, n)
	} else {
		end = r.message(s, sec, n)
	}
	if extract {
		s.shut(max(end.end, sec.body))
	}
	return end
}

// isIdentity tells whether an encoding leaves a body as it is.
func isIdentity(name string) bool {
	kind := decoding(name)
	return kind == isUnknown || kind == isPlain
}

// tooDeep tells whether a limit keeps the reader from looking inside, and notes it.
func (r *reader) tooDeep(n *node) bool {
	switch {
	case n.depth >= r.limits.Depth:
		r.once("depth_limit", severe, n.where, "more than %d levels", r.limits.Depth)
	case r.parts >= r.limits.Parts:
		r.once("part_limit", severe, n.where, "more than %d parts", r.limits.Parts)
	case r.expired():
	default:
		return false
	}
	n.part.Unparsed = true
	return true
}

// multipart reads a multipart (RFC 2046, 5.1).
func (r *reader) multipart(s *source, sec section, n *node) delimiter {
	var end delimiter
	switch {
	case sec.isCut:
		end = sec.end
		text := r.openPreamble(s, sec.body, n)
		s.shut(end.end)
		text.keep(r, n)
	case !r.tooDeep(n):
		end = r.children(s, sec.body, n)
	default:
		end = s.next(sec.body)
	}
	n.part.RawSize = int64(max(end.end-sec.body, 0))
	n.part.Size = n.part.RawSize
	return end
}

// children reads the parts of a multipart whose body starts at pos.
func (r *reader) children(s *source, pos int, n *node) delimiter {
	own := len(s.bounds)
	for i := range s.bounds {
		if s.bounds[i].text == n.boundary {
			r.once("ambiguous_boundary_twice", severe, n.where, "the boundary of part %s again: %s", s.bounds[i].part, excerpt(n.boundary))
		}
	}
	s.bounds = append(s.bounds, bound{text: n.boundary, part: n.part.Path})
	childType := plainType
	if n.part.Type == "multipart/digest" {
		childType = messageType // RFC 2046, 5.1.5
	}
	text := r.openPreamble(s, pos, n)
	d := s.next(pos)
	begins := d.level == own && !d.closing
	if begins {
		s.shut(d.end)
		text.drop(r, n)
	} else {
		r.defect("missing_start_boundary", warning, n.where, "a multipart without parts")
	}
	for d.level == own && !d.closing {
		if n.part.Unparsed || r.parts >= r.limits.Parts || r.expired() {
			if r.parts >= r.limits.Parts {
				r.once("part_limit", severe, n.where, "more than %d parts", r.limits.Parts)
			}
			n.part.Unparsed = true
			d = s.next(d.next)
			continue
		}
		d = r.entity(s, d.next, r.newChild(n, len(n.children)+1, childType))
	}
	if d.level == own { // the epilogue
		s.bounds = s.bounds[:own+1]
		s.bounds[own].closed = true
		d = s.next(d.next)
	} else {
		r.defect("missing_end_boundary", warning, n.where, "%s", excerpt(n.boundary))
	}
	s.bounds = s.bounds[:own]
	if !begins {
		s.shut(d.end)
		text.keep(r, n)
	}
	return d
}

// maxHashed is how many messages within each other are hashed, each over all that is inside it: time stays linear.
const maxHashed = 3

// message reads a nested message that is not encoded.
func (r *reader) message(s *source, sec section, n *node) delimiter {
	hash := sha256.New()
	hashed := n.inside < maxHashed
	if hashed {
		s.open(sec.body, func(b []byte) { hash.Write(b) })
	}
	end := r.entity(s, sec.body, r.newChild(n, 1, plainType))
	n.part.RawSize = int64(max(end.end-sec.body, 0))
	n.part.Size = n.part.RawSize
	if hashed {
		s.shut(end.end)
		n.part.Sha256 = hash.Sum(n.sum[:0])
	}
	return end
}
