package process

import (
	"bytes"
	"encoding"
	"fmt"
	"net/url"
	"reflect"
	"time"

	"go.yaml.in/yaml/v3"
)

// masked stands for a secret.
const masked = "********"

// Show writes a configuration as YAML with every key, so that [Load] would read it back. A field tagged
// `secret:"true"` is masked where it is not empty; of one tagged `secret:"url"` only the password is.
func Show(cfg any) ([]byte, error) {
	node, err := showValue(reflect.ValueOf(cfg), "")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(node); err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	return out.Bytes(), nil
}

func showValue(v reflect.Value, secret string) (*yaml.Node, error) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
		}
		v = v.Elem()
	}
	if secret != "" {
		return showSecret(v, secret)
	}
	if v.Type() == durationType {
		return scalar(formatDuration(time.Duration(v.Int())))
	}
	if text, ok := v.Interface().(encoding.TextMarshaler); ok {
		data, err := text.MarshalText()
		if err != nil {
			return nil, fmt.Errorf("writing the configuration: %w", err)
		}
		return scalar(string(data))
	}
	switch v.Kind() {
	case reflect.Struct:
		return showStruct(v)
	case reflect.Map:
		return showMap(v)
	case reflect.Slice, reflect.Array:
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			item, err := showValue(v.Index(i), "")
			if err != nil {
				return nil, err
			}
			list.Content = append(list.Content, item)
		}
		if v.Len() == 0 {
			list.Style = yaml.FlowStyle
		}
		return list, nil
	default:
		return scalar(v.Interface())
	}
}

func showStruct(v reflect.Value) (*yaml.Node, error) {
	mapping := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range fields(v.Type()) {
		key, err := scalar(f.key)
		if err != nil {
			return nil, err
		}
		value, err := showValue(v.FieldByIndex(f.index), f.secret)
		if err != nil {
			return nil, err
		}
		mapping.Content = append(mapping.Content, key, value)
	}
	return mapping, nil
}

func showMap(v reflect.Value) (*yaml.Node, error) {
	mapping := &yaml.Node{Kind: yaml.MappingNode}
	byName := make(map[string]reflect.Value)
	for _, key := range v.MapKeys() {
		byName[fmt.Sprint(key.Interface())] = v.MapIndex(key)
	}
	for _, name := range sortedKeys(byName) {
		key, err := scalar(name)
		if err != nil {
			return nil, err
		}
		value, err := showValue(byName[name], "")
		if err != nil {
			return nil, err
		}
		mapping.Content = append(mapping.Content, key, value)
	}
	if len(byName) == 0 {
		mapping.Style = yaml.FlowStyle
	}
	return mapping, nil
}

// showSecret masks a value. A text that can't be read as a URL is masked as a whole.
func showSecret(v reflect.Value, how string) (*yaml.Node, error) {
	if v.IsZero() {
		return scalar("")
	}
	if how == "url" && v.Kind() == reflect.String {
		if u, err := url.Parse(v.String()); err == nil && u.Scheme != "" && u.Host != "" {
			query := u.Query()
			if query.Has("password") {
				query.Set("password", masked)
				u.RawQuery = query.Encode()
			}
			return scalar(u.Redacted())
		}
	}
	return scalar(masked)
}

func scalar(value any) (*yaml.Node, error) {
	node := &yaml.Node{}
	if err := node.Encode(value); err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	return node, nil
}
