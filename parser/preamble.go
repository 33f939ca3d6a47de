package parser

// preamble is what stands in a multipart before its first part, read as a text while it passes: where no part begins, it is
// what clients show. The multipart stays one in the tree.
type preamble struct {
	body  *body
	texts [2]candidates // what there was before
}

// openPreamble begins to read the body of a multipart as a text.
func (r *reader) openPreamble(s *source, pos int, n *node) preamble {
	p := preamble{texts: r.texts}
	declared := n.part.Type
	n.part.Type = plainType
	p.body = r.newBody(n)
	// It is read as it stands, and extracted as a multipart is.
	n.part.Type, p.body.isText, p.body.decoder, p.body.extract = declared, true, asItStands{}, nil
	s.open(pos, p.body.tap)
	return p
}

// drop forgets what was read.
func (p *preamble) drop(r *reader, n *node) {
	p.body.forget()
	n.part.Size, n.cut = 0, false
	r.texts = p.texts
}

// keep makes a text of a multipart without parts, unless there is nothing in it.
func (p *preamble) keep(r *reader, n *node) {
	if !p.body.visible {
		p.drop(r, n)
		return
	}
	r.defect("ambiguous_multipart", severe, n.where, "a %s in which no part begins, read as a text", excerpt(n.part.Type))
	p.body.keep()
	p.body.ambiguous(r, n.where)
}
