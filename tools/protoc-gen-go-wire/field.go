package main

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const slicesPackage = protogen.GoImportPath("slices")

// field makes the code of one field, or of all fields of a oneof.
type field interface {
	size(g *protogen.GeneratedFile)
	write(g *protogen.GeneratedFile)
	read(g *protogen.GeneratedFile)
}

// fieldsOf returns the fields of a message in the order in which they are written.
func fieldsOf(g *protogen.GeneratedFile, m *protogen.Message, mine []string) ([]field, error) {
	sorted := slices.SortedFunc(slices.Values(m.Fields), func(a, b *protogen.Field) int {
		return int(a.Desc.Number() - b.Desc.Number())
	})
	var out []field
	for _, f := range sorted {
		k, err := kindOf(g, f, mine)
		switch {
		case err != nil:
			return nil, err
		case f.Oneof == nil:
			out = append(out, plain(f, k))
		case f == f.Oneof.Fields[0]:
			out = append(out, oneof{f.Oneof})
		}
	}
	return out, nil
}

func plain(f *protogen.Field, k kind) field {
	switch {
	case f.Desc.IsMap():
		return entries{f}
	case f.Desc.IsList() && k.packed:
		return packed{f, k}
	case f.Desc.IsList():
		return list{f, k}
	default:
		return single{f, k}
	}
}

// tag is a field's tag as it stands on the wire, and how many octets it has.
func tag(f *protogen.Field, t protowire.Type) (tag uint64, size int) {
	tag = protowire.EncodeTag(f.Desc.Number(), t)
	return tag, protowire.SizeVarint(tag)
}

type single struct {
	f *protogen.Field
	k kind
}

func (s single) size(g *protogen.GeneratedFile) {
	x := "x." + s.f.GoName
	_, n := tag(s.f, s.k.wire)
	g.P("if ", s.k.set(x), " { n += ", n, " + ", s.k.size(x), " }")
}

func (s single) write(g *protogen.GeneratedFile) {
	x := "x." + s.f.GoName
	t, _ := tag(s.f, s.k.wire)
	g.P("if ", s.k.set(x), " { ", s.k.write(t, x), " }")
}

func (s single) read(g *protogen.GeneratedFile) {
	x := "x." + s.f.GoName
	t, _ := tag(s.f, s.k.wire)
	g.P("case ", t, ":")
	if s.k.message != "" {
		g.P("if ", x, " == nil { ", x, " = new(", s.k.message, ") }")
	}
	g.P(s.k.read(x))
}

type list struct {
	f *protogen.Field
	k kind
}

func (l list) size(g *protogen.GeneratedFile) {
	_, n := tag(l.f, l.k.wire)
	g.P("for _, e := range x.", l.f.GoName, " { n += ", n, " + ", l.k.size("e"), " }")
}

func (l list) write(g *protogen.GeneratedFile) {
	t, _ := tag(l.f, l.k.wire)
	x := "x." + l.f.GoName
	g.P("for i := len(", x, ") - 1; i >= 0; i-- { ", l.k.write(t, x+"[i]"), " }")
}

func (l list) read(g *protogen.GeneratedFile) {
	t, _ := tag(l.f, l.k.wire)
	x := "x." + l.f.GoName
	g.P("case ", t, ":")
	if l.k.message != "" {
		g.P("list := make([]", l.k.message, ", r.Run(", t, "))")
		g.P(x, " = ", slicesPackage.Ident("Grow"), "(", x, ", len(list))")
		g.P("for i := range list {")
		g.P("if i > 0 { r.Tag() }")
		g.P(x, " = append(", x, ", &list[i])")
		g.P(l.k.read("&list[i]"))
		g.P("}")
		return
	}
	g.P(x, " = append(", x, ", ", l.k.value, ")")
}

// packed is a list of numbers. It is written packed and read in either form.
type packed struct {
	f *protogen.Field
	k kind
}

func (p packed) size(g *protogen.GeneratedFile) {
	_, n := tag(p.f, protowire.BytesType)
	x := "x." + p.f.GoName
	g.P("if len(", x, ") > 0 { n += ", n, " + ", g.QualifiedGoIdent(runtime.Ident("SizeBytes")), "(",
		runtime.Ident("SizePacked"), "(", x, ")) }")
}

func (p packed) write(g *protogen.GeneratedFile) {
	t, _ := tag(p.f, protowire.BytesType)
	x := "x." + p.f.GoName
	g.P("if len(", x, ") > 0 { ", runtime.Ident("WritePacked"), "(w, ", t, ", ", x, ") }")
}

func (p packed) read(g *protogen.GeneratedFile) {
	x := "x." + p.f.GoName
	together, _ := tag(p.f, protowire.BytesType)
	alone, _ := tag(p.f, protowire.VarintType)
	g.P("case ", together, ": ", x, " = ", runtime.Ident("ReadPacked"), "(r, ", x, ")")
	g.P("case ", alone, ": ", x, " = append(", x, ", ", p.k.value, ")")
}

// entries is a map of strings.
type entries struct{ f *protogen.Field }

func (e entries) size(g *protogen.GeneratedFile) {
	_, n := tag(e.f, protowire.BytesType)
	g.P("for k, v := range x.", e.f.GoName, " { n += ", n, " + ", runtime.Ident("SizeBytes"), "(", runtime.Ident("SizeEntry"), "(k, v)) }")
}

func (e entries) write(g *protogen.GeneratedFile) {
	t, _ := tag(e.f, protowire.BytesType)
	g.P("for k, v := range x.", e.f.GoName, " { w.Entry(", t, ", k, v) }")
}

func (e entries) read(g *protogen.GeneratedFile) {
	t, _ := tag(e.f, protowire.BytesType)
	g.P("case ", t, ": x.", e.f.GoName, " = r.Entry(x.", e.f.GoName, ")")
}

// oneof is a choice between messages.
type oneof struct{ o *protogen.Oneof }

func (o oneof) size(g *protogen.GeneratedFile) {
	g.P("switch k := x.", o.o.GoName, ".(type) {")
	for _, f := range o.o.Fields {
		_, n := tag(f, protowire.BytesType)
		g.P("case *", f.GoIdent, ": n += ", n, " + ", runtime.Ident("SizeBytes"), "(k.", f.GoName, ".SizeWire())")
	}
	g.P("}")
}

func (o oneof) write(g *protogen.GeneratedFile) {
	g.P("switch k := x.", o.o.GoName, ".(type) {")
	for _, f := range o.o.Fields {
		t, _ := tag(f, protowire.BytesType)
		g.P("case *", f.GoIdent, ": w.Message(", t, ", k.", f.GoName, ")")
	}
	g.P("}")
}

func (o oneof) read(g *protogen.GeneratedFile) {
	for _, f := range o.o.Fields {
		t, _ := tag(f, protowire.BytesType)
		g.P("case ", t, ":")
		g.P("k, _ := x.", o.o.GoName, ".(*", f.GoIdent, ")")
		g.P("if k == nil || k.", f.GoName, " == nil {")
		g.P("k = &", f.GoIdent, "{", f.GoName, ": new(", f.Message.GoIdent, ")}")
		g.P("x.", o.o.GoName, " = k")
		g.P("}")
		g.P("r.Message(k.", f.GoName, ")")
	}
}

// kind is how the values of a field are written. Its functions return code.
type kind struct {
	wire    protowire.Type
	packed  bool   // in lists
	message string // its type, where it is a message of ours
	set     func(x string) string
	size    func(x string) string
	write   func(tag uint64, x string) string
	read    func(x string) string
	value   string // what read assigns, where it assigns
}

func kindOf(g *protogen.GeneratedFile, f *protogen.Field, mine []string) (kind, error) {
	d := f.Desc
	unknown := fmt.Errorf("the field %s is of a kind that this plugin does not know", d.FullName())
	switch {
	case d.IsMap():
		if d.MapKey().Kind() != protoreflect.StringKind || d.MapValue().Kind() != protoreflect.StringKind {
			return kind{}, unknown
		}
		return kind{}, nil
	case f.Oneof != nil && (d.HasOptionalKeyword() || d.Kind() != protoreflect.MessageKind || !ours(f.Message, mine)),
		d.HasPresence() && d.Kind() != protoreflect.MessageKind, d.IsList() && d.Kind() == protoreflect.BoolKind:
		return kind{}, unknown
	}
	name := func(name string) string { return g.QualifiedGoIdent(runtime.Ident(name)) }
	var k kind
	switch d.Kind() {
	case protoreflect.StringKind:
		k = octets(name, "String")
	case protoreflect.BytesKind:
		k = octets(name, "Bytes")
	case protoreflect.BoolKind:
		k = kind{
			wire: protowire.VarintType, set: func(x string) string { return x }, size: func(string) string { return "1" },
			write: func(tag uint64, _ string) string { return fmt.Sprintf("w.Uint(%d, 1)", tag) }, value: "r.Varint() != 0",
		}
	case protoreflect.Int32Kind:
		k = number(name, "int32")
	case protoreflect.Int64Kind:
		k = number(name, "int64")
	case protoreflect.EnumKind:
		k = number(name, g.QualifiedGoIdent(f.Enum.GoIdent))
	case protoreflect.MessageKind:
		return messageKind(g, name, f, mine, unknown)
	default:
		return kind{}, unknown
	}
	k.read = func(x string) string { return x + " = " + k.value }
	return k, nil
}

func ours(m *protogen.Message, mine []string) bool {
	return slices.Contains(mine, string(m.Desc.ParentFile().Package()))
}

func octets(name func(string) string, method string) kind {
	return kind{
		wire:  protowire.BytesType,
		set:   func(x string) string { return "len(" + x + ") > 0" },
		size:  func(x string) string { return name("SizeBytes") + "(len(" + x + "))" },
		write: func(tag uint64, x string) string { return fmt.Sprintf("w.%s(%d, %s)", method, tag, x) },
		value: "r." + method + "()",
	}
}

func number(name func(string) string, goType string) kind {
	return kind{
		wire: protowire.VarintType, packed: true,
		set:   func(x string) string { return x + " != 0" },
		size:  func(x string) string { return name("SizeVarint") + "(uint64(" + x + "))" },
		write: func(tag uint64, x string) string { return fmt.Sprintf("w.Uint(%d, uint64(%s))", tag, x) },
		value: goType + "(r.Varint())",
	}
}

func messageKind(g *protogen.GeneratedFile, name func(string) string, f *protogen.Field, mine []string, unknown error) (kind, error) {
	k := kind{wire: protowire.BytesType, set: func(x string) string { return x + " != nil" }}
	if ours(f.Message, mine) {
		k.message = g.QualifiedGoIdent(f.Message.GoIdent)
		k.size = func(x string) string { return name("SizeBytes") + "(" + x + ".SizeWire())" }
		k.write = func(tag uint64, x string) string { return fmt.Sprintf("w.Message(%d, %s)", tag, x) }
		k.read = func(x string) string { return "r.Message(" + x + ")" }
		return k, nil
	}
	clock := f.Message.GoIdent.GoName
	full := f.Message.Desc.FullName()
	if f.Desc.IsList() || full != "google.protobuf.Timestamp" && full != "google.protobuf.Duration" {
		return kind{}, unknown
	}
	k.size = func(x string) string { return name("SizeBytes") + "(" + name("Size"+clock) + "(" + x + "))" }
	k.write = func(tag uint64, x string) string { return fmt.Sprintf("w.%s(%d, %s)", clock, tag, x) }
	k.read = func(x string) string { return fmt.Sprintf("%s = r.%s(%s)", x, clock, x) }
	return k, nil
}
