package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"

	"fmp/assets"
	"fmp/featurize/yamlfile"
	"fmp/onnx/regularfile"
	"fmp/onnx/suggest"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/option"
)

// envPrefix starts the names of the environment variables that are settings. Dots and hyphens of a
// key become underscores behind it.
const envPrefix = "FMP_"

// otherEnv are the FMP_* variables that are not settings: the settings file, and the tests' data.
// Another variable of the prefix is an error, as it may be a setting misspelt.
var otherEnv = []string{"FMP_CONFIG", "FMP_DATA"}

// Bounds of settings: the bytes of a settings file, and the values of one list. They keep a slip,
// such as a data file given for settings, from filling memory.
const (
	maxConfigBytes = 64 << 10
	maxListValues  = 256
)

// sourceDataset is where a setting's value comes from that was left to the data set.
const sourceDataset = "what suits the data set"

// setting is one resolved key. Value has the type of the field, and Source is the strongest that
// gave it.
type setting struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
	// "default", "file NAME", "environment NAME", "flag --NAME" or "flag --set"
	Source string `json:"source"`
	// Allowed names the allowed values; empty: any.
	Allowed string `json:"allowed,omitempty"`
	Doc     string `json:"doc,omitempty"`
}

// resolver resolves a struct of settings from, weakest first: the defaults it holds, a file, FMP_*
// environment variables, flags. An unknown key anywhere is an error that names the nearest known
// one. A resolver serves one run of one command.
type resolver struct {
	// target is a pointer to a struct of settings. Its fields have the tags of [option.List].
	target any
	cmd    *cobra.Command
	reads  []string // keys, and groups with a dot behind them, that the command reads; empty: all
	// fields are all settings of target, also those that the command does not read.
	fields  []option.Setting
	aliases map[string]string // short flag to key
	// file and sets are the values of --config and --set.
	file string
	sets []string
	// list is made by merge: every setting with its value and source, in the order of fields.
	list []setting
}

// bindSettings gives cmd a flag for every setting of the struct that target points to, which holds
// the defaults, short names for some of them, --config and --set. They are resolved before the
// command runs; one that checks other flags before them takes PreRunE away, and calls resolve.
//
// reads are the keys, and the groups with a dot behind them ("engine."), that the command reads,
// where it does not read them all. The others have no flag; file and environment, which commands
// share, may hold them. Flags are named by their keys; short names are turned into keys by the flag
// set's normalisation.
func bindSettings(cmd *cobra.Command, target any, aliases map[string]string,
	reads ...string) *resolver {
	s := &resolver{target: target, cmd: cmd, reads: reads, aliases: map[string]string{},
		fields: option.List(target)}
	maps.Copy(s.aliases, aliases)
	for _, f := range s.fields {
		if f.Flag != "" {
			s.aliases[f.Flag] = f.Key
		}
	}
	maps.DeleteFunc(s.aliases, func(_, key string) bool { return !s.isRead(key) })
	flags := cmd.Flags()
	short := map[string]string{}
	for a, key := range s.aliases {
		short[key] = a
	}
	// A flag that is given by short name and key is then given twice, and refused.
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(cmp.Or(s.aliases[name], name))
	})
	for _, f := range s.fields {
		if !s.isRead(f.Key) {
			continue
		}
		usage := f.Doc
		if allowed := f.Allowed(); allowed != "" {
			usage += ": " + allowed
		}
		if a := short[f.Key]; a != "" {
			usage += " (also --" + a + ")"
		}
		text := showValue(f.Value.Interface())
		if text == `""` || text == "[]" {
			text = "" // the help then shows no default
		}
		flags.Var(&settingFlag{text: text, kind: kindName(f.Value.Type())}, f.Key, usage)
		if f.Value.Kind() == reflect.Bool {
			flags.Lookup(f.Key).NoOptDefVal = "true" // --KEY alone turns it on
		}
		// It fails only for a flag that does not exist or has one already.
		_ = cmd.RegisterFlagCompletionFunc(f.Key, completeSetting(f))
	}
	flags.StringVar(&s.file, "config", "",
		"settings `FILE` (YAML, JSON or TOML), or the name of one that comes with the program: "+
			strings.Join(assets.ConfigNames(), ", ")+"; also $FMP_CONFIG")
	flags.StringArrayVar(&s.sets, "set", nil, "set `KEY=VALUE`; may be given several times")
	_ = cmd.RegisterFlagCompletionFunc("config", // or files
		cobra.FixedCompletions(assets.ConfigNames(), cobra.ShellCompDirectiveDefault))
	_ = cmd.RegisterFlagCompletionFunc("set", completeSet(slices.DeleteFunc(slices.Clone(s.fields),
		func(f option.Setting) bool { return !s.isRead(f.Key) })))
	cmd.PreRunE = func(*cobra.Command, []string) error { return s.resolve() }
	return s
}

// completeSetting returns the completion of a setting's values. Files are offered where a setting
// may name one. Completion reads no settings file. Values are offered and not enforced: resolve
// checks those that are given.
func completeSetting(f option.Setting) cobra.CompletionFunc {
	switch values := f.Choices(); {
	case f.Key == "dataset.name":
		return completeDataset
	case f.Key == "methods":
		return completeList(values...)
	case strings.HasSuffix(f.Key, ".dir"):
		return completeDirs(0)
	case f.TakesFile(), f.Key == "engine.library":
		return cobra.FixedCompletions(values, cobra.ShellCompDirectiveDefault)
	case values != nil:
		return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	}
	return cobra.NoFileCompletions
}

// settingFlag is a flag whose text is decoded with all other sources in resolve. Its text is that
// of the default until it is given. pflag takes the text at the declaration for the default that
// help shows.
type settingFlag struct {
	text, kind string
	given      int // how often
}

func (f *settingFlag) String() string { return f.text }

// Set keeps the text, and counts how often the flag is given: twice is an error of readFlags. It
// never fails: a wrong value is told with the faults of all other sources.
func (f *settingFlag) Set(s string) error {
	f.text = s
	f.given++
	return nil
}
func (f *settingFlag) Type() string { return f.kind }
func (f *settingFlag) Setting()     {} // [outputs.Setting]

// recorded is the command for manifests, without paths of this machine. It has the settings that
// differ from their defaults, wherever they were given, and other flags that do, by ascending
// names. Those that leave a model as it is are none of it: acts are the keys and groups of the
// others, all where it is empty. Values of files are recorded by their base names, as paths tell of
// the machine. The text is to be read, and no promise that a shell takes it as it is.
func (s *resolver) recorded(acts ...string) string {
	parts := []string{s.cmd.CommandPath()}
	s.cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value := flagText(f)
		at := slices.IndexFunc(s.list, func(x setting) bool { return x.Key == f.Name })
		switch {
		case strings.HasPrefix(f.Name, "engine.") || slices.Contains([]string{"config",
			"dataset.dir", "dataset.test", "extractor.batch", "help", "json", "model",
			"set"}, f.Name):
			return
		case at >= 0:
			if value = showValue(s.list[at].Value); s.list[at].Source == sourceDataset ||
				!among(f.Name, acts) || value == f.DefValue || f.DefValue == "" &&
				(value == `""` || value == "[]") {
				return
			}
			own := s.fields[slices.IndexFunc(s.fields,
				func(x option.Setting) bool { return x.Key == f.Name })]
			if own.NamesFile() || f.Name == "dataset.name" {
				value = showValue(filepath.Base(own.Value.String()))
			}
		case f.Value.String() == f.DefValue:
			return
		case f.Name == "from":
			value = filepath.Base(value)
		}
		parts = append(parts, "--"+f.Name+"="+value)
	})
	return strings.Join(parts, " ")
}

// flagText is a flag's value, of a list its items. pflag prints lists in brackets, which no command
// line takes. Items are parted by commas, as --set and the flags themselves take them.
func flagText(f *pflag.Flag) string {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return strings.Join(list.GetSlice(), ",")
	}
	return f.Value.String()
}

// among reports whether a key is one of these, or of their groups with a dot behind them; of none
// every key is. "engine." stands for "engine.name" and all beside it.
func among(key string, of []string) bool {
	return len(of) == 0 || slices.ContainsFunc(of, func(r string) bool {
		return r == key || strings.HasSuffix(r, ".") && strings.HasPrefix(key, r)
	})
}

// kindName is the kind of a setting's value as help and errors call it. A pointer is an optional
// value, and is called by its element's kind.
func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return kindName(t.Elem())
	case reflect.Slice:
		return "list"
	case reflect.Float64, reflect.Float32:
		return "number"
	case reflect.Bool:
		return "bool"
	case reflect.String:
		return "text"
	}
	return "int"
}

// keys returns the keys of every command's settings, its own first. The keys of fmp run and fmp
// pool are those of all settings files. A key that several commands have is there once.
func (s *resolver) keys() []string {
	var keys []string
	for _, f := range s.fields {
		keys = append(keys, f.Key)
	}
	// Files and environment are shared by all commands.
	for _, key := range append(option.Keys[experiment.Config](), option.Keys[poolSettings]()...) {
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// known reports whether any command has a setting of this key.
func (s *resolver) known(key string) bool { return slices.Contains(s.keys(), key) }

// isRead reports whether the command reads a setting. A key of other commands' settings is known,
// and not read. Files and environment may hold keys that are not read; flags may not.
func (s *resolver) isRead(key string) bool {
	if !slices.ContainsFunc(s.fields, func(f option.Setting) bool { return f.Key == key }) {
		return false
	}
	return among(key, s.reads)
}

// given reports whether a resolved setting was given by somebody. It is asked after resolve, which
// makes the list.
func (s *resolver) given(key string) bool {
	return slices.ContainsFunc(s.list,
		func(x setting) bool {
			return x.Key == key && x.Source != "default" && x.Source != sourceDataset
		})
}

// unknown words the complaint about a key. In this order it tries a value taken for a group, a
// group taken for a value, the nearest spelling, and a missing group. where is the source, and is
// printed as it is. Keys are compared in lower case.
func (s *resolver) unknown(key, where string) error {
	key = clip(strings.ToLower(key))
	var under []string
	for _, k := range s.keys() {
		if strings.HasPrefix(k, key+".") {
			under = append(under, k)
		}
		if strings.HasPrefix(key, k+".") {
			return fmt.Errorf("unknown setting %q in %s: %s is a single value; did you mean %q?",
				key, where, k, k)
		}
	}
	if len(under) > 0 {
		return fmt.Errorf("setting %q in %s is a group; its keys are %s", key, where,
			strings.Join(under, ", "))
	}
	if near := suggest.Nearest(key, s.keys()); near != "" {
		return fmt.Errorf("unknown setting %q in %s; did you mean %q?", key, where, near)
	}
	// A key given without its group ("alpha"), or in a wrong one.
	last := key[strings.LastIndex(key, ".")+1:]
	for _, k := range s.keys() {
		if k[strings.LastIndex(k, ".")+1:] == last {
			return fmt.Errorf("unknown setting %q in %s; did you mean %q?", key, where, k)
		}
	}
	return fmt.Errorf("unknown setting %q in %s; `fmp config` lists them all", key, where)
}

// resolve reads every source, decodes and validates the settings into the target. Its errors are
// the user's (exit code 2). The target has the values, and list their sources, where there is no
// error. --config goes before $FMP_CONFIG. No source is written to.
func (s *resolver) resolve() error {
	if s.file == "" {
		s.file = os.Getenv("FMP_CONFIG")
	}
	var file *viper.Viper
	if s.file != "" {
		var err error
		if file, err = readConfigFile(s.file); err != nil {
			return usageError(err)
		}
	}
	return usageError(s.merge(file))
}

// merge puts the values of a settings file, nil for none, of the environment and of the flags over
// the defaults.
//
// viper reads the file. It merges too, but names neither the source of a value nor an unknown key,
// and decodes 1.5 to the integer 1.
func (s *resolver) merge(file *viper.Viper) error {
	g := &givenValues{resolver: s, source: map[string]string{}, raw: map[string]any{}}
	if file != nil {
		g.readFile(file)
	}
	g.readEnvironment(os.Environ())
	g.readFlags()
	if len(g.errs) == 0 {
		g.decode()
	}
	if len(g.errs) > 0 {
		return errors.Join(g.errs...)
	}
	err := errors.Join(option.Check(s.target)...)
	// Validate checks single values too, and so takes the place of option.Check.
	if whole, ok := s.target.(interface{ Validate() error }); ok {
		err = whole.Validate()
	}
	if err != nil {
		return err
	}
	s.suit()
	return nil
}

// givenValues collects the values that somebody gave, a later source over an earlier one. Errors
// are collected, so that one run of the command tells of all of them. It is used for one merge.
type givenValues struct {
	*resolver
	source map[string]string
	raw    map[string]any // not decoded yet
	errs   []error
}

// give notes a value and its source, over an earlier one. Sources are therefore read from the
// weakest to the strongest.
func (g *givenValues) give(key, source string, value any) {
	g.source[key], g.raw[key] = source, value
}

// refuse collects an error, so that one run tells of all.
func (g *givenValues) refuse(err error) { g.errs = append(g.errs, err) }

// readFile reads the values of a settings file. Those that other commands alone read are collected
// too, and decode passes them over. viper has put keys in lower case and joined groups by dots. A
// key without a value would else pass for one that was left out.
func (g *givenValues) readFile(file *viper.Viper) {
	where := "file " + g.file
	for _, key := range file.AllKeys() {
		val := file.Get(key)
		switch {
		case !g.known(key):
			g.refuse(g.unknown(key, where))
		case val == nil:
			g.refuse(fmt.Errorf("setting %s in %s has no value; give one, or leave the key out "+
				"for the default", key, where))
		default:
			g.give(key, where, val)
		}
	}
}

// readEnvironment reads the FMP_* variables among NAME=VALUE. An empty variable counts as none, as
// shells leave such behind.
func (g *givenValues) readEnvironment(environ []string) {
	byEnv := map[string]string{}
	for _, k := range g.keys() {
		byEnv[envName(k)] = k
	}
	for _, e := range environ {
		name, val, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, envPrefix) || slices.Contains(otherEnv, name) || val == "" {
			continue
		}
		if key, ok := byEnv[name]; ok {
			g.give(key, "environment "+name, val)
			continue
		}
		hint := "`fmp config` lists them all"
		if near := suggest.Nearest(name,
			slices.AppendSeq(slices.Clone(otherEnv), maps.Keys(byEnv))); near != "" {
			hint = fmt.Sprintf("did you mean %s?", near)
		}
		g.refuse(fmt.Errorf("environment variable %s is no setting; %s", name, hint))
	}
}

// readFlags reads the flags of settings, and --set. A key by both ways, or twice by one, is
// refused: neither would be the later one.
func (g *givenValues) readFlags() {
	flagged := map[string]bool{}
	g.cmd.Flags().Visit(func(f *pflag.Flag) {
		if sf, ok := f.Value.(*settingFlag); ok {
			if flagged[f.Name] = true; sf.given > 1 {
				g.refuse(fmt.Errorf("setting %s is given by two flags; give it once", f.Name))
			}
			g.give(f.Name, "flag --"+f.Name, sf.text)
		}
	})
	for _, kv := range g.sets {
		key, val, ok := strings.Cut(kv, "=")
		key = strings.TrimSpace(key)
		if full, ok := g.aliases[key]; ok {
			key = full
		}
		switch {
		case !ok:
			g.refuse(fmt.Errorf("--set %s: want KEY=VALUE, --set erm.l2=3 for example", kv))
		case !g.known(key):
			g.refuse(g.unknown(key, "--set"))
		case !g.isRead(key):
			g.refuse(fmt.Errorf("--set %s: %s does not read this setting; --help lists those "+
				"that it reads", key, g.cmd.CommandPath()))
		case flagged[key]:
			g.refuse(fmt.Errorf("setting %s is given by two flags; give it once", key))
		default:
			flagged[key] = true
			g.give(key, "flag --set", val)
		}
	}
}

// decode writes the given values into the fields of the settings, and lists all with their sources.
// The target is written field by field: after an error it is of no use. list has every field once,
// in the order of fields, but for those with an error.
func (g *givenValues) decode() {
	g.list = nil
	for _, f := range g.fields {
		if val, given := g.raw[f.Key]; given {
			if err := decodeSetting(val, f.Value); err != nil {
				g.refuse(fmt.Errorf("setting %s (%s): %w", f.Key, g.source[f.Key], err))
				continue
			}
		}
		g.list = append(g.list, setting{f.Key, f.Value.Interface(),
			cmp.Or(g.source[f.Key], "default"), f.Allowed(), f.Doc})
	}
}

// suit sets the settings that were left to the data set. It comes after all sources, as the data
// set is itself a setting.
func (s *resolver) suit() {
	filler, ok := s.target.(interface{ FillDefaults() []string })
	if !ok {
		return
	}
	for _, key := range filler.FillDefaults() {
		for i, f := range s.fields {
			if f.Key == key {
				s.list[i].Value, s.list[i].Source = f.Value.Interface(), sourceDataset
			}
		}
	}
}

// readConfigFile reads a settings file by its extension, or, where path is a bare name, the
// settings of that name that come with the program. A bare name has neither a dot nor a slash.
func readConfigFile(path string) (*viper.Viper, error) {
	if !strings.ContainsAny(path, `./\`) {
		text, err := assets.Config(path)
		if err != nil {
			hint := "a file is given with its extension"
			if near := suggest.Nearest(path, assets.ConfigNames()); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
			}
			return nil, fmt.Errorf("--config %s: %w; %s", path, err, hint)
		}
		v := viper.New()
		v.SetConfigType("yaml")
		if err := v.ReadConfig(bytes.NewReader(text)); err != nil {
			return nil, fmt.Errorf("settings %s of the program: %w", path, err)
		}
		return v, nil
	}
	if ext := strings.ToLower(filepath.Ext(path)); !slices.Contains([]string{".yaml", ".yml",
		".json", ".toml"}, ext) {
		return nil, fmt.Errorf("settings file %s: the extension %q is not known; allowed are "+
			".yaml, .yml, .json, .toml", path, ext)
	}
	data, err := regularfile.ReadFile(path, maxConfigBytes)
	if err != nil {
		return nil, fmt.Errorf("settings file: %w", err)
	}
	return parseConfig(path, data)
}

// parseConfig reads the settings file of that name, which tells YAML, JSON and TOML apart. path
// serves for its extension and for errors. The order is: strict parse, viper, and a second parse to
// compare keys with.
func parseConfig(path string, data []byte) (*viper.Viper, error) {
	v := viper.New()
	v.SetConfigFile(path)
	var err error
	ext := strings.ToLower(filepath.Ext(path))
	if strings.HasPrefix(ext, ".y") {
		err = yamlfile.Check(data)
	}
	if err == nil {
		err = v.ReadConfig(bytes.NewReader(data))
	}
	var values map[string]any
	switch {
	case err != nil:
	case ext == ".json":
		if err = checkNoDoubles(json.NewDecoder(bytes.NewReader(data))); err == nil {
			if values, err = exactJSON(data); err == nil {
				err = v.MergeConfigMap(values)
			}
		}
	case ext == ".toml":
		err = toml.Unmarshal(data, &values)
	default:
		err = yaml.Unmarshal(data, &values)
	}
	if err == nil {
		err = checkPaths("", values, v.AllKeys(), map[string]bool{})
	}
	if err != nil {
		return nil, fmt.Errorf("settings file %s: %s", path,
			strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
	}
	return v, nil
}

// checkPaths refuses a setting that is given by two keys, and one that is not among those that were
// read: of keys in another case, or a key with dots beside the group that it names, viper drops
// one. group is "" or ends in a dot; seen is changed.
func checkPaths(group string, values map[string]any, read []string, seen map[string]bool) error {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		path := group + strings.ToLower(key)
		switch inner := values[key].(type) {
		case map[string]any:
			if err := checkPaths(path+".", inner, read, seen); err != nil {
				return err
			}
			continue
		case map[any]any: // of YAML, with a key that is no text, which is then told of as unknown
			continue
		}
		if seen[path] || !slices.Contains(read, path) {
			return fmt.Errorf("setting %s is given by two keys, or stands in one of two groups of "+
				"a name; give each once", path)
		}
		seen[path] = true
	}
	return nil
}

// exactJSON decodes an object with its whole numbers as written: float64 has those up to 2^53.
// Larger numbers would be rounded: seeds have 64 bits.
func exactJSON(data []byte) (values map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&values); err != nil {
		return nil, err
	}
	exact(values)
	return values, nil
}

// exact puts a number in the place of each json.Number of a tree, and returns the tree. Maps and
// lists are changed in place. Integers come as int or, above its limit, as uint64.
func exact(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, of := range v {
			v[key] = exact(of)
		}
	case []any:
		for i, of := range v {
			v[i] = exact(of)
		}
	case json.Number:
		if n, err := strconv.Atoi(v.String()); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return n
		}
		n, _ := v.Float64() // viper has refused those that are too large
		return n
	}
	return v
}

// checkNoDoubles reads one value and refuses an object with a key that stands in it twice, the
// first of which would be ignored. Case is ignored, as the names of settings ignore it. The decoder
// stands before the value. Depth is bounded by the file's 64 KiB. RFC 8259, section 4, leaves the
// meaning of such an object open.
func checkNoDoubles(d *json.Decoder) error {
	t, err := d.Token()
	if t != json.Delim('{') && t != json.Delim('[') {
		return err
	}
	keys := map[string]bool{}
	for err == nil && d.More() {
		if t == json.Delim('{') {
			var key json.Token
			if key, err = d.Token(); err != nil {
				return err
			}
			name := strings.ToLower(fmt.Sprint(key))
			if keys[name] {
				return fmt.Errorf("%q stands twice in one object", key)
			}
			keys[name] = true
		}
		err = checkNoDoubles(d)
	}
	if err == nil {
		_, err = d.Token() // the end
	}
	return err
}

// underscores maps the characters of keys that names of variables lack.
var underscores = strings.NewReplacer(".", "_", "-", "_")

// envName is the environment variable of a key: erm.l2 is FMP_ERM_L2.
func envName(key string) string { return envPrefix + strings.ToUpper(underscores.Replace(key)) }

// decodeSetting puts val, as a file, the environment or a flag gave it, into a field. Nothing is
// rounded or guessed: 1.5 is no integer, and true is no number. The field is set where all of the
// value is right, and left as it is otherwise. Errors name the value, cut by clip, and the kind
// that is wanted.
func decodeSetting(val any, field reflect.Value) error {
	out := reflect.New(field.Type())
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Result: out.Interface(), ErrorUnused: true,
		DecodeHook: mapstructure.ComposeDecodeHookFunc(listHook, numberHook),
	})
	if err != nil {
		return err
	}
	if err := d.Decode(val); err != nil {
		want := map[string]string{"list": "a list, such as 0.1,0.5", "number": "a number",
			"bool": "true or false", "text": "a text",
			"int": "a whole number"}[kindName(field.Type())]
		if field.Type().Kind() == reflect.Slice {
			want = "a list of " + map[string]string{"number": "numbers", "int": "whole numbers",
				"text": "texts", "bool": "true or false"}[kindName(field.Type().Elem())]
		} else if field.CanUint() {
			want += " of at least 0"
		}
		return fmt.Errorf("is %s; want %s", clip(showValue(val)), want)
	}
	if v := out.Elem(); v.Kind() == reflect.Slice && v.Len() > maxListValues {
		return fmt.Errorf("is a list of %d values; allowed are %d", v.Len(), maxListValues)
	}
	field.Set(out.Elem())
	return nil
}

// clip shortens a text that an error shows. 80 characters fit a line of a terminal. It counts
// runes, so that no character is cut in two.
func clip(s string) string {
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "..."
	}
	return s
}

// listHook makes lists of the texts that the environment and flags give, and of single values.
// Items of a text are parted by commas, and brackets around them are optional. An empty text is the
// empty list.
func listHook(from, to reflect.Type, data any) (any, error) {
	if to.Kind() != reflect.Slice || from.Kind() == reflect.Slice {
		return data, nil
	}
	text, ok := data.(string)
	if !ok {
		return []any{data}, nil
	}
	text = strings.TrimSpace(text)
	text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	list := []any{}
	if strings.TrimSpace(text) == "" {
		return list, nil
	}
	for _, p := range strings.Split(text, ",") {
		list = append(list, strings.TrimSpace(p))
	}
	return list, nil
}

// numberHook reads numbers out of texts and refuses those that the field cannot hold. A float64
// comes from a file, where 2 and 2.0 are one number; one with a fraction is no integer. ParseBool
// takes 1, t, T, TRUE, true, True, and their opposites.
func numberHook(_, to reflect.Type, data any) (any, error) {
	switch v := data.(type) {
	case string:
		text := strings.TrimSpace(v)
		switch to.Kind() {
		case reflect.Int, reflect.Int64:
			return strconv.ParseInt(text, 10, 64)
		case reflect.Uint, reflect.Uint64:
			return strconv.ParseUint(text, 10, 64)
		case reflect.Float64:
			return strconv.ParseFloat(text, 64)
		case reflect.Bool:
			return strconv.ParseBool(text)
		}
	case float64:
		signed := to.Kind() == reflect.Int || to.Kind() == reflect.Int64
		unsigned := to.Kind() == reflect.Uint || to.Kind() == reflect.Uint64
		if signed && v != float64(int64(v)) || unsigned && v != float64(uint64(v)) {
			return nil, errors.New("not a whole number")
		}
	case int, int64, uint64: // of YAML and JSON, of TOML, and above the limit of both
		switch u, large := v.(uint64); {
		case to.Kind() == reflect.String: // dataset.classes: 20
			return fmt.Sprint(v), nil
		case large && u > math.MaxInt64 && (to.Kind() == reflect.Int || to.Kind() == reflect.Int64):
			return nil, errors.New("too large")
		}
	}
	return data, nil
}

// showValue is a value as a settings file would hold it. A text that YAML would read as more than
// itself is quoted. A float64 is written with as few digits as give it back.
func showValue(v any) string {
	rv := reflect.ValueOf(v)
	switch rv.Kind() {
	case reflect.String:
		if s := rv.String(); s == "" || strings.ContainsAny(s, ":#{}[],&*!|>'\"%@` \t\n\\") {
			return strconv.Quote(s)
		}
		return rv.String()
	case reflect.Slice:
		parts := make([]string, rv.Len())
		for i := range parts {
			parts[i] = showValue(rv.Index(i).Interface())
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case reflect.Float64:
		return strconv.FormatFloat(rv.Float(), 'g', -1, 64)
	case reflect.Pointer:
		if !rv.IsNil() {
			return showValue(rv.Elem().Interface())
		}
		return `""`
	}
	return fmt.Sprint(v)
}
