package process

import "reflect"

// Changed lists the keys whose values differ between two configurations of one type, in the order of the struct. A list
// that differs is one key.
func Changed(before, after any) []string {
	return changed(reflect.Indirect(reflect.ValueOf(before)), reflect.Indirect(reflect.ValueOf(after)), "")
}

func changed(before, after reflect.Value, path string) []string {
	if section(before.Type()) {
		var keys []string
		for _, f := range fields(before.Type()) {
			keys = append(keys, changed(before.FieldByIndex(f.index), after.FieldByIndex(f.index), join(path, f.key))...)
		}
		return keys
	}
	switch before.Kind() {
	case reflect.Slice, reflect.Map:
		if before.Len() == 0 && after.Len() == 0 { // nil or not
			return nil
		}
	default:
	}
	if reflect.DeepEqual(before.Interface(), after.Interface()) {
		return nil
	}
	return []string{path}
}
