package process

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

const tagName = "yaml"

// field is one key of a section.
type field struct {
	key    string
	typ    reflect.Type
	index  []int
	secret string
}

// fields lists the keys of a struct, those of inlined structs included.
func fields(t reflect.Type) []field {
	var list []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get(tagName), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		if slices.Contains(strings.Split(options, ","), "inline") {
			for _, inner := range fields(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				list = append(list, inner)
			}
			continue
		}
		if name == "" {
			name = f.Name
		}
		list = append(list, field{key: name, typ: f.Type, index: []int{i}, secret: f.Tag.Get("secret")})
	}
	return list
}

// section tells whether a type is a struct with keys, rather than one value.
func section(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !readsText(t)
}

// checkKeys finds the first key of a tree that a type does not know.
func checkKeys(value any, t reflect.Type, path, source string, root reflect.Type) error {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch value := value.(type) {
	case []any:
		if t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
			return nil // the decoder says what is wrong with the type
		}
		for i, item := range value {
			if err := checkKeys(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i), source, root); err != nil {
				return err
			}
		}
	case map[string]any:
		return checkSection(value, t, path, source, root)
	}
	return nil
}

func checkSection(value map[string]any, t reflect.Type, path, source string, root reflect.Type) error {
	var known map[string]reflect.Type
	if section(t) {
		known = make(map[string]reflect.Type)
		for _, f := range fields(t) {
			known[f.key] = f.typ
		}
	} else if t.Kind() != reflect.Map {
		return nil
	}
	for _, key := range sortedKeys(value) {
		at := join(path, key)
		inner, ok := known[key]
		switch {
		case known == nil:
			inner = t.Elem()
		case !ok:
			return unknownKey(at, path, source, known, root)
		}
		if err := checkKeys(value[key], inner, at, source, root); err != nil {
			return err
		}
	}
	return nil
}

func unknownKey(at, path, source string, known map[string]reflect.Type, root reflect.Type) error {
	siblings := make([]string, 0, len(known))
	for key := range known {
		siblings = append(siblings, join(path, key))
	}
	if !strings.HasPrefix(source, "environment") {
		source = "configuration file " + source
	}
	near := nearest(at, siblings)
	if near == "" { // perhaps it stands in the wrong section
		last := at[strings.LastIndexByte(at, '.')+1:]
		for _, leaf := range leaves(root, "") {
			if strings.HasSuffix(leaf.path, "."+last) {
				near = leaf.path
				break
			}
		}
	}
	if near == "" {
		slices.Sort(siblings)
		return Usage("%s: unknown key %s; known here: %s", source, at, strings.Join(siblings, ", "))
	}
	return Usage("%s: unknown key %s; did you mean %s?", source, at, near)
}

// leaf is a key that has a value of its own.
type leaf struct {
	path string
	typ  reflect.Type
}

// leaves lists the keys below a struct, as far as they have fixed names.
func leaves(t reflect.Type, path string) []leaf {
	var list []leaf
	for _, f := range fields(t) {
		typ := f.typ
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if section(typ) {
			list = append(list, leaves(typ, join(path, f.key))...)
			continue
		}
		list = append(list, leaf{path: join(path, f.key), typ: typ})
	}
	return list
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// nearest finds the candidate that differs least from s, empty where none is near enough to be meant.
func nearest(s string, candidates []string) string {
	best, bestDistance := "", len(s)
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if d := distance(s, c); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	last := len(s) - 1 - strings.LastIndexByte(s, '.')
	if bestDistance > 1+last/4 {
		return ""
	}
	return best
}

// distance is the number of single-letter changes between two texts (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
