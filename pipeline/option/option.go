// Package option declares the settings of commands. A struct of settings says each once, by the
// tags of its fields; defaults, checks, flags, shell completion and documentation are derived from
// them:
//
//	yaml, json  the name in a file of the struct's own, and the key in a settings file, --set KEY=VALUE,
//	            flags and FMP_* variables
//	setting     the key, where it is not the name
//	flag        a short flag
//	default     the default value
//	allowed     the allowed values, for a list those of each element: alternatives separated by |,
//	            each a name, a range LOW..HIGH or LOW..<HIGH, a word in capitals for any text, or @LIST
//	            for the names of a list; without the tag, any value
//	check       "no" where the value is checked by its group ([Checker]) or its reader
//	doc         the description; {what} in it is replaced by the values that suit each data set
//
// Package settings has the groups that several commands read; a command's own struct holds those
// that it reads.
package option

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"fmp/assets"
	"fmp/onnx/suggest"
)

// Setting is one setting of a struct, as described by its tags.
type Setting struct {
	Key  string // dotted: "erm.l2"
	Name string // dotted: the path of yaml tags
	Flag string // short flag; "": none
	Doc  string
	// Value is the field of the configuration that holds it; a nil pointer is left to the reader.
	Value reflect.Value
	Tag   reflect.StructTag

	index   []int  // where the field is
	init    string // the default's text
	allowed []allowed
	checked bool
}

// allowed is one allowed alternative of a setting's value.
type allowed struct {
	name      string  // a name, or
	any       string  // any text: what it stands for, or
	low, high float64 // a range
	below     bool    // high is not in it
}

// Lister is a struct of settings, or a group of them, with lists behind @LIST in its tags.
type Lister interface {
	Lists() map[string]func() []string
}

// Checker is a group of settings, by value, with rules that tags do not say.
type Checker interface {
	CheckGroup() error
}

// datasetDefaults holds the values of {NAME} in the tag doc: a setting that suits each data set.
var datasetDefaults = map[string]func(assets.DatasetDefaults) string{
	"classes": func(s assets.DatasetDefaults) string { return cmp.Or(s.Classes, "all") },
	"l2":      func(s assets.DatasetDefaults) string { return strconv.FormatFloat(s.L2, 'g', -1, 64) },
	"points":  func(s assets.DatasetDefaults) string { return strconv.Itoa(s.Points) },
	"fresh":   func(s assets.DatasetDefaults) string { return strconv.Itoa(s.Fresh) },
}

// Default returns a struct of settings with their defaults.
// A default that does not parse panics: it is a fault of the program.
func Default[T any]() T {
	var c T
	for _, s := range List(&c) {
		s.reset()
	}
	return c
}

// List returns the settings of the struct that config points to, in the order of its fields.
// A setting's Value is the field itself, so that setting it changes config.
func List(config any) []Setting {
	v := reflect.ValueOf(config).Elem()
	out := slices.Clone(stated(v.Type()))
	for i := range out {
		out[i].Value = v.FieldByIndex(out[i].index)
	}
	return out
}

// Keys returns the keys of all settings of a struct.
// They are in the order of fields.
func Keys[T any]() []string {
	var out []string
	for _, s := range stated(reflect.TypeFor[T]()) {
		out = append(out, s.Key)
	}
	return out
}

// Check returns the faults of each setting by itself, and those of its groups.
// All faults are returned, so that a user can mend them at once. Groups are asked where their own
// settings have faults too.
func Check(config any) []error {
	var errs []error
	for _, s := range List(config) {
		errs = append(errs, s.Check()...)
	}
	v := reflect.ValueOf(config).Elem()
	for i := range v.NumField() {
		if !v.Type().Field(i).IsExported() {
			continue
		}
		if group, ok := v.Field(i).Interface().(Checker); ok {
			if err := group.CheckGroup(); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

// FillDefaults replaces the settings of a struct that are left at 0 by values that suit a data set
// ([assets.DatasetDefaults]), and returns the keys that it set. Those that leave names stay.
func FillDefaults(config any, dataset string, leave ...string) []string {
	suits := assets.DefaultsFor(dataset)
	values := map[string]any{"dataset.classes": suits.Classes, "erm.l2": suits.L2,
		"federation.points": suits.Points, "predictor.fresh": suits.Fresh}
	var keys []string
	for _, s := range List(config) {
		value, ok := values[s.Key]
		if !ok || !s.Value.IsZero() || slices.Contains(leave, s.Key) ||
			reflect.ValueOf(value).IsZero() {
			continue
		}
		s.Value.Set(reflect.ValueOf(value))
		keys = append(keys, s.Key)
	}
	return keys
}

// known holds the settings of each struct, whose tags are read once.
var known sync.Map

// stated returns the settings as the tags describe them, without values.
// Two goroutines may read the same tags at once, with equal results. The slice is shared: callers
// copy it before they set values.
func stated(t reflect.Type) []Setting {
	if s, ok := known.Load(t); ok {
		return s.([]Setting)
	}
	s := settingsOf(t, nil, "", nil, nil)
	known.Store(t, s)
	return s
}

// settingsOf appends the settings of a struct, and of the structs in it, in order. Lists of an
// outer struct win over those of a group with the same name. at is the index of t within the whole
// (reflect.Value.FieldByIndex).
func settingsOf(t reflect.Type, lists map[string]func() []string, prefix string, at []int,
	out []Setting) []Setting {
	if l, ok := reflect.New(t).Interface().(Lister); ok {
		own := maps.Clone(lists)
		if lists = l.Lists(); own != nil {
			maps.Copy(lists, own)
		}
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "-" || !f.IsExported() {
			continue // no setting
		}
		index := append(slices.Clone(at), i)
		if f.Type.Kind() == reflect.Struct {
			if name != "" {
				name += "."
			}
			out = settingsOf(f.Type, lists, prefix+name, index, out)
			continue
		}
		s := Setting{Key: cmp.Or(f.Tag.Get("setting"), prefix+name), Name: prefix + name,
			Flag: f.Tag.Get("flag"), Doc: f.Tag.Get("doc"),
			Tag: f.Tag, index: index, init: f.Tag.Get("default"),
			checked: f.Tag.Get("check") != "no"}
		for what, value := range datasetDefaults {
			if strings.Contains(s.Doc, "{"+what+"}") {
				s.Doc = strings.ReplaceAll(s.Doc, "{"+what+"}", assets.BySet(value))
			}
		}
		if tag, ok := f.Tag.Lookup("allowed"); ok {
			s.allowed = alternatives(tag, lists)
		}
		out = append(out, s)
	}
	return out
}

// alternatives parses the tag allowed. A number alone is a range of one value and a name as well.
// Bounds of names are NaN, which no number is between.
func alternatives(tag string, lists map[string]func() []string) []allowed {
	var out []allowed
	for _, t := range strings.Split(tag, "|") {
		low, high, isRange := strings.Cut(t, "..")
		switch {
		case isRange:
			end, below := strings.CutPrefix(high, "<")
			out = append(out, allowed{low: number(low), high: number(end), below: below})
		case strings.HasPrefix(t, "@"):
			for _, name := range lists[t[1:]]() {
				out = append(out, allowed{name: name, low: math.NaN(), high: math.NaN()})
			}
		case t != "" && t == strings.ToUpper(t) && t != strings.ToLower(t):
			out = append(out, allowed{any: "a " + strings.ToLower(t)})
		default:
			out = append(out, allowed{name: t, low: number(t), high: number(t)})
		}
	}
	return out
}

// number returns the number in a tag's text; NaN, which is in no range, for other texts.
func number(text string) float64 {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return x
}

// reset sets the setting to its default.
// A list is never nil, and its elements in the tag are divided by commas or spaces.
func (s *Setting) reset() {
	if s.Value.Kind() != reflect.Slice {
		set(s.Value, s.init)
		return
	}
	s.Value.Set(reflect.MakeSlice(s.Value.Type(), 0, 4))
	for _, text := range strings.FieldsFunc(s.init, func(r rune) bool { return r == ',' || r == ' ' }) {
		e := reflect.New(s.Value.Type().Elem()).Elem()
		set(e, text)
		s.Value.Set(reflect.Append(s.Value, e))
	}
}

// set parses a default; a test parses all of them.
func set(v reflect.Value, text string) {
	var err error
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		set(v.Elem(), text)
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		var b bool
		b, err = strconv.ParseBool(text)
		v.SetBool(b)
	case reflect.Int:
		var n int64
		n, err = strconv.ParseInt(text, 10, 64)
		v.SetInt(n)
	case reflect.Uint64:
		var n uint64
		n, err = strconv.ParseUint(text, 10, 64)
		v.SetUint(n)
	case reflect.Float64:
		var x float64
		x, err = strconv.ParseFloat(text, 64)
		v.SetFloat(x)
	default:
		err = fmt.Errorf("settings of type %v are not known", v.Type())
	}
	if err != nil {
		panic(fmt.Sprintf("tag default:%q: %v", text, err))
	}
}

// Given reports whether the value is another than the default, and asks for something: 0, none and
// negative numbers do not.
func (s *Setting) Given() bool {
	v := reflect.Indirect(s.Value)
	if !v.IsValid() || v.IsZero() || v.Kind() == reflect.String && v.String() == "none" ||
		v.CanFloat() && v.Float() < 0 {
		return false
	}
	was := Setting{Value: reflect.New(s.Value.Type()).Elem(), init: s.init}
	was.reset()
	return !reflect.DeepEqual(s.Value.Interface(), was.Value.Interface())
}

// NamesFile reports whether the value is the path of a file.
// A text that is one of the setting's names, such as default, is no path.
func (s *Setting) NamesFile() bool {
	text, ok := s.Value.Interface().(string)
	return ok && text != "" && s.TakesFile() && !slices.Contains(s.Choices(), text)
}

// TakesFile reports whether the value may be the path of a file.
func (s *Setting) TakesFile() bool {
	return slices.ContainsFunc(s.allowed, func(a allowed) bool { return a.any == "a file" })
}

// Choices returns the names that the setting, or each element of it, may take.
func (s *Setting) Choices() []string {
	var out []string
	for _, a := range s.allowed {
		if a.name != "" && math.IsNaN(a.low) {
			out = append(out, a.name)
		}
	}
	return out
}

// Allowed describes the allowed values of the setting, or of each element: "0 or 1e-06 to 1e+06",
// "auto, nchw or nhwc"; "" for any.
// Numbers that stand alone are told as they are in the tag.
func (s *Setting) Allowed() string {
	var out []string
	for _, a := range s.allowed {
		switch {
		case a.any != "":
			out = append(out, a.any)
		case a.name != "":
			out = append(out, a.name)
		case a.below:
			out = append(out, fmt.Sprintf("%s to less than %s", plain(a.low), plain(a.high)))
		case a.low < a.high:
			out = append(out, fmt.Sprintf("%s to %s", plain(a.low), plain(a.high)))
		}
	}
	return suggest.Or(out...)
}

// plain formats a bound, without an exponent where it has few digits.
func plain(x float64) string {
	if x == math.Trunc(x) && math.Abs(x) < 1e9 {
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// Check returns the violations of the setting's value by itself.
// A list has one error for each element in fault, and an empty list none.
func (s *Setting) Check() []error {
	if s.Value.Kind() != reflect.Slice {
		return s.checkOne(s.Value)
	}
	var errs []error
	for i := range s.Value.Len() {
		errs = append(errs, s.checkOne(s.Value.Index(i))...)
	}
	return errs
}

// checkOne checks one value. A nil pointer, a setting without the tag allowed and one whose check
// is "no" hold always. Numbers of any kind are compared as float64.
func (s *Setting) checkOne(v reflect.Value) []error {
	if v = reflect.Indirect(v); len(s.allowed) == 0 || !s.checked || !v.IsValid() {
		return nil
	}
	if v.Kind() == reflect.String {
		text := v.String()
		if slices.ContainsFunc(s.allowed,
			func(a allowed) bool {
				return a.any != "" && text != "" || a.any == "" && a.name == text
			}) {
			return nil
		}
		names := s.Choices()
		return []error{Violation(s.Key, strconv.Quote(text), s.Allowed(),
			fmt.Sprintf("pass --set %s=%s, say", s.Key,
				cmp.Or(suggest.Nearest(text, names), names[0])))}
	}
	x := v.Convert(reflect.TypeFor[float64]()).Float()
	if slices.ContainsFunc(s.allowed,
		func(a allowed) bool { return a.low <= x && (x < a.high || x == a.high && !a.below) }) {
		return nil
	}
	what := "X"
	if v.Kind() == reflect.Int {
		what = "N"
	}
	return []error{Violation(s.Key, v.Interface(), s.Allowed(),
		fmt.Sprintf("pass --set %s=%s in that range", s.Key, what))}
}

// Violation returns the error of a value that is not allowed, with the next step.
func Violation(key string, value any, allowed, next string) error {
	return fmt.Errorf("setting %s is %v; allowed is %s: %s", key, value, allowed, next)
}
