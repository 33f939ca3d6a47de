package process

import (
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const envPrefix = "ROHRPOST_"

// OtherEnv lists the ROHRPOST_ variables that are not configuration keys: those of the command line, and those of
// tests, which start with ROHRPOST_TEST_.
func OtherEnv() []string {
	return []string{
		"ROHRPOST_CONFIG",     // the configuration file, as --config
		"ROHRPOST_DATA",       // the data folder, as --data
		"ROHRPOST_GRPC",       // the admin address, as --grpc
		"ROHRPOST_JSON",       // the address of JSON over HTTP, as --json of up
		"ROHRPOST_PROGRAM",    // how hints call the program
		"ROHRPOST_SMTP",       // the SMTP address, as --smtp
		"ROHRPOST_TOKEN_FILE", // the CLI's token, as --token-file
	}
}

// variable is a key's value from the environment.
type variable struct {
	name  string
	path  string
	value any
}

// tree is the value at its place.
func (v variable) tree() map[string]any {
	keys := strings.Split(v.path, ".")
	tree := map[string]any{keys[len(keys)-1]: v.value}
	for _, key := range slices.Backward(keys[:len(keys)-1]) {
		tree = map[string]any{key: tree}
	}
	return tree
}

// readEnv finds the variables that are keys of a struct.
func readEnv(env []string, schema reflect.Type) ([]variable, error) {
	byName := make(map[string]leaf)
	for _, l := range leaves(schema, "") {
		byName[EnvName(l.path)] = l
	}
	var found []variable
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, envPrefix) || value == "" ||
			slices.Contains(OtherEnv(), name) || strings.HasPrefix(name, envPrefix+"TEST_") {
			continue
		}
		l, ok := byName[name]
		if !ok {
			return nil, unknownVariable(name, byName)
		}
		parsed, err := parseVariable(value, l.typ)
		if err != nil {
			return nil, Usage("environment variable %s: %s", name, oneLine(err.Error()))
		}
		found = append(found, variable{name: name, path: l.path, value: parsed})
	}
	return found, nil
}

// EnvName is the variable that overrides a key such as gateway.max_size.
func EnvName(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

func unknownVariable(name string, byName map[string]leaf) error {
	var candidates []string // without the prefix, which is no likeness
	for _, known := range append(sortedKeys(byName), OtherEnv()...) {
		candidates = append(candidates, strings.TrimPrefix(known, envPrefix))
	}
	if near := nearest(strings.TrimPrefix(name, envPrefix), candidates); near != "" {
		return Usage("environment variable %s: no such configuration key; did you mean %s%s?", name, envPrefix, near)
	}
	return Usage("environment variable %s: no such configuration key; `rohrpost config show` lists the keys (gateway.max_size is ROHRPOST_GATEWAY_MAX_SIZE)", name)
}

// parseVariable reads a variable by the type of its key: text stays as it is, lists may be separated by commas, all
// else is YAML.
func parseVariable(value string, t reflect.Type) (any, error) {
	if t == durationType || readsText(t) || t.Kind() == reflect.String {
		return value, nil
	}
	if t.Kind() == reflect.Slice && !section(t.Elem()) && !strings.HasPrefix(value, "[") {
		var list []any
		for _, item := range strings.Split(value, ",") {
			parsed, err := parseVariable(strings.TrimSpace(item), t.Elem())
			if err != nil {
				return nil, err
			}
			list = append(list, parsed)
		}
		return list, nil
	}
	var parsed any
	err := yaml.Unmarshal([]byte(value), &parsed)
	return parsed, err
}
