package process

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/knadh/koanf/v2"
	"go.yaml.in/yaml/v3"
)

// Load reads the configuration into a pointer to a struct that already holds the defaults: first the YAML file at path
// (none where path is empty), then the ROHRPOST_ variables of env (as os.Environ gives them), which win.
//
// Keys are the yaml tags of the struct. A key that the struct does not know is an error that names the key, the file and
// the nearest known key; so is an unknown ROHRPOST_ variable. Values may be durations with units (30s, 5m, 7d), and
// everything that implements encoding.TextUnmarshaler. A list replaces the default list; a section without keys changes
// nothing.
//
// The variable of a key is ROHRPOST_ and the key in upper case with _ for each dot: ROHRPOST_GATEWAY_MAX_SIZE is
// gateway.max_size. Lists are separated by commas, lists of sections are written as YAML. A variable that is set to
// nothing counts as not set, as compose files pass it so. [OtherEnv] lists the ROHRPOST_ names that are not keys.
//
// Every error is a [*UsageError].
func Load(path string, env []string, into any) error {
	target := reflect.TypeOf(into)
	if target == nil || target.Kind() != reflect.Pointer || target.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("process: Load wants a pointer to a struct, not %T", into)
	}
	schema := target.Elem()
	k := koanf.New(".")
	if path != "" {
		file, err := readFile(path)
		if err != nil {
			return err
		}
		if err := checkKeys(file, schema, "", path, schema); err != nil {
			return err
		}
		if err := k.Load(layer(file), nil); err != nil {
			return Usage("configuration file %s: %w", path, err)
		}
		if err := decode(k, into); err != nil {
			return Usage("configuration file %s: %s", path, err)
		}
	}
	variables, err := readEnv(env, schema)
	if err != nil {
		return err
	}
	for _, v := range variables {
		k := koanf.New(".")
		if err := k.Load(layer(v.tree()), nil); err != nil {
			return Usage("environment variable %s: %w", v.name, err)
		}
		if err := checkKeys(v.tree(), schema, "", "environment variable "+v.name, schema); err != nil {
			return err
		}
		if err := decode(k, into); err != nil {
			return Usage("environment variable %s: %s", v.name, err)
		}
	}
	return nil
}

// layer is one source of configuration, already a tree: koanf merges it and the struct is decoded from it.
type layer map[string]any

// Read returns the tree.
func (l layer) Read() (map[string]any, error) { return l, nil }

// ReadBytes is not for trees.
func (l layer) ReadBytes() ([]byte, error) {
	return nil, errors.New("process: this source has no bytes")
}

func readFile(path string) (map[string]any, error) {
	// The path is what the user named as his configuration.
	data, err := os.ReadFile(path) //nolint:gosec // see above
	if err != nil {
		var pathErr *os.PathError
		if errors.As(err, &pathErr) {
			err = pathErr.Err
		}
		return nil, Usage("configuration file %s: %w; name a readable file with --config or ROHRPOST_CONFIG", path, err)
	}
	var doc any
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, Usage("configuration file %s: %s", path, oneLine(strings.TrimPrefix(err.Error(), "yaml: ")))
	}
	if doc == nil {
		return nil, nil
	}
	tree, ok := doc.(map[string]any)
	if !ok {
		return nil, Usage("configuration file %s: want sections such as `gateway:` at the top, found a %s", path, kindWord(doc))
	}
	return dropEmpty(tree), nil
}

// dropEmpty takes keys without a value away, so that a section whose keys are all commented out keeps its defaults.
func dropEmpty(tree map[string]any) map[string]any {
	for key, value := range tree {
		switch value := value.(type) {
		case nil:
			delete(tree, key)
		case map[string]any:
			dropEmpty(value)
		}
	}
	return tree
}

func kindWord(v any) string {
	switch v.(type) {
	case []any:
		return "list"
	case map[string]any, map[any]any:
		return "section"
	default:
		return "single value"
	}
}

// oneLine joins the lines of a text: errors for users are one line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
