package process

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/v2"
)

// decode writes a tree into a struct that holds the values from before. The error is one line that starts with the key.
func decode(k *koanf.Koanf, into any) error {
	err := k.UnmarshalWithConf("", into, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		DecodeHook:      decodeHook,
		Result:          into,
		TagName:         tagName,
		SquashTagOption: "inline",
		ZeroFields:      true, // a list replaces the default list and does not mix with it
		MatchName:       func(mapKey, fieldName string) bool { return mapKey == fieldName },
	}})
	if err == nil {
		return nil
	}
	var decodeErr *mapstructure.DecodeError
	if errors.As(err, &decodeErr) {
		return fmt.Errorf("%s: %s", strings.Trim(decodeErr.Name(), "."), oneLine(decodeErr.Unwrap().Error()))
	}
	return errors.New(oneLine(err.Error()))
}

var (
	durationType        = reflect.TypeFor[time.Duration]()
	prefixType          = reflect.TypeFor[netip.Prefix]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// decodeHook turns scalars into durations and into what reads itself from text.
func decodeHook(from, to reflect.Type, data any) (any, error) {
	if to == durationType {
		return ParseDuration(fmt.Sprint(data))
	}
	if !readsText(to) {
		return data, nil
	}
	text, ok := scalarText(data)
	if !ok {
		return nil, fmt.Errorf("want a single value, found a %s", kindWord(data))
	}
	if from == to {
		return data, nil
	}
	value := reflect.New(to)
	if err := value.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)); err != nil {
		if to == prefixType { // its error tells of Go
			return nil, fmt.Errorf("%q is no network: give an address and its bits, such as 192.0.2.0/24 or 192.0.2.7/32", text)
		}
		return nil, err
	}
	return value.Elem().Interface(), nil
}

func readsText(t reflect.Type) bool {
	return t.Kind() != reflect.Interface && t.Kind() != reflect.Pointer && reflect.PointerTo(t).Implements(textUnmarshalerType)
}

func scalarText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case int:
		return strconv.Itoa(v), true
	case int64, uint64, bool:
		return fmt.Sprint(v), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case time.Time: // YAML reads 2026-11-30 as a date
		return v.Format(time.RFC3339), true
	default:
		return "", false
	}
}

var daysAndWeeks = regexp.MustCompile(`^([0-9]+w)?([0-9]+d)?`)

// ParseDuration reads a duration as time.ParseDuration does, with days (d) and weeks (w) in front: 90s, 1h30m, 7d, 1d12h.
// A number without unit is refused, except 0.
func ParseDuration(s string) (time.Duration, error) {
	text := strings.TrimSpace(s)
	bad := fmt.Errorf("duration %q: want a number and a unit, such as 30s, 5m or 7d", s)
	head := daysAndWeeks.FindStringSubmatch(text)
	var total float64
	for i, unit := range []time.Duration{7 * 24 * time.Hour, 24 * time.Hour} {
		if digits := head[i+1]; digits != "" {
			n, err := strconv.ParseInt(digits[:len(digits)-1], 10, 32)
			if err != nil {
				return 0, bad
			}
			total += float64(n) * float64(unit)
		}
	}
	if rest := text[len(head[0]):]; rest != "" || head[0] == "" {
		d, err := time.ParseDuration(rest)
		if err != nil {
			return 0, bad
		}
		total += float64(d)
	}
	if total > math.MaxInt64/2 {
		return 0, bad
	}
	return time.Duration(total), nil
}

// formatDuration writes a duration such that ParseDuration reads it, without trailing zero units.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
