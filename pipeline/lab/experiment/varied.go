package experiment

import (
	"maps"
	"slices"
	"strings"

	"fmp/pipeline/option"
)

// unvaried are settings that decide no figure, or that a table names in its title.
var unvaried = []string{"output.dir", "engine.threads", "engine.library", "dataset.dir",
	"dataset.bad", "extractor.batch", "dataset.name", "methods", "protocol", "federation.alpha",
	"federation.partition"}

// Varied returns the settings in which runs differ, by dotted key, and each run's values of them.
// Settings that decide no figure, and those that a table's title has, are left out. A setting that
// one run lacks, as an earlier version wrote it, does not differ for that alone. Keys are in
// alphabetical order, and values in that of dirs; "" stands for a setting that a run lacks.
func Varied(dirs []string) (keys []string, values [][]string, err error) {
	var all []map[string]string
	for _, d := range dirs {
		c, err := ReadConfig(d)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, flatten(c.Portable()))
	}
	seen := map[string]string{}
	for _, settings := range all {
		for k, v := range settings {
			// Each value is compared with the run before: where two runs differ, two in a row do.
			if was, ok := seen[k]; ok && was != v && !slices.Contains(keys, k) &&
				!slices.Contains(unvaried, k) {
				keys = append(keys, k)
			}
			seen[k] = v
		}
	}
	slices.Sort(keys)
	for _, settings := range all {
		var line []string
		for _, k := range keys {
			line = append(line, settings[k])
		}
		values = append(values, line)
	}
	return keys, values, nil
}

// Setting returns the value of a setting in a run directory, by dotted key, and the keys that there
// are. An unknown key has the value "" and no error: the caller looks it up in keys.
func Setting(dir, key string) (value string, keys []string, err error) {
	c, err := ReadConfig(dir)
	if err != nil {
		return "", nil, err
	}
	all := flatten(c)
	return all[key], slices.Sorted(maps.Keys(all)), nil
}

// Brief names the values of settings in a few words: as much of each key's end as no other setting
// has, and its value. One that is empty is not named. keys and values have one length.
func Brief(keys, values []string) string {
	var out []string
	all := option.Keys[Config]()
	for i, k := range keys {
		if values[i] == "" {
			continue
		}
		out = append(out, ending(k, all)+" = "+values[i])
	}
	return strings.Join(out, ", ")
}

// ending returns the shortest end of a dotted key that no other one has. It is of whole words
// between dots, and the whole key where no end is its own.
func ending(key string, all []string) string {
	for at := strings.LastIndex(key, "."); at >= 0; at = strings.LastIndex(key[:at], ".") {
		if !slices.ContainsFunc(all, func(k string) bool {
			return k != key && strings.HasSuffix("."+k, key[at:])
		}) {
			return key[at+1:]
		}
	}
	return key
}
