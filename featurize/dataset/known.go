package dataset

import (
	"fmt"
	"path/filepath"
	"slices"

	"fmp/featurize/digits"
	"fmp/onnx/suggest"
)

// Known describes a data set that the program knows by name; help, settings, tables and pages take
// their statements on data sets from the list of [All]. Its models are those in assets/models under
// its name.
type Known struct {
	Name string
	// Kind is the format of its files; empty for drawn data sets.
	Kind Kind
	// Folders are the names under which it is looked for in the data folder; it is stored under the
	// first.
	Folders []string
	// Home is the page that describes it, Files the downloads; empty where the user fetches it (fmp
	// data import).
	Home  string
	Files []File
	// Unpack maps the wanted files in a tar.gz archive (by base name) to their maximum size in
	// bytes; nil where the files are used as they are.
	Unpack map[string]int64
	// Paper is Table I of the paper (arXiv 2605.18554), homogeneous clients, by method; nil where
	// the paper has none.
	Paper map[string]Figures
}

// File is one file of a data set as it is published.
type File struct {
	Name string   // name under which it is stored
	URLs []string // where it is published, tried in turn
	MD5  string   // checksum as published, hexadecimal
	// SHA256, in hexadecimal, is checked as well, since MD5 can be forged.
	SHA256 string
	Max    int64 // bound on its size in bytes
}

// Figures are accuracy and expected calibration error, both from 0 to 1.
type Figures struct {
	ACC float64 `json:"acc"`
	ECE float64 `json:"ece"`
}

const (
	lecun     = "https://ossci-datasets.s3.amazonaws.com/mnist/"
	lecunToo  = "https://storage.googleapis.com/cvdf-datasets/mnist/"
	lecunHome = "http://yann.lecun.com/exdb/mnist/"
	kriz      = "https://www.cs.toronto.edu/~kriz/"
	cifarHome = kriz + "cifar.html"
	mib       = 1 << 20
	batch     = 10_000 * 3073 // bytes of a file of CIFAR-10
)

// mnistFile is a file of MNIST, which two servers have. 64 MiB is far above the largest as
// published, the training images of 9.9 MB.
func mnistFile(name, md5, sha256 string) File {
	return File{Name: name, URLs: []string{lecun + name, lecunToo + name}, MD5: md5,
		SHA256: sha256, Max: 64 * mib}
}

// All lists the data sets that the program knows by name.
//
// The MD5 checksums of CIFAR are stated on its home page; those of MNIST, whose page has none, are
// the ones that torchvision and its mirrors publish. No source publishes SHA-256 sums; those here
// are the ones that many projects check these files against. A call makes a new list, which the
// caller may change.
func All() []Known {
	return []Known{
		{Name: string(digits.Grey)},
		{Name: string(digits.Color)},
		{
			Name: "mnist", Kind: KindIDX,
			Folders: []string{"MNIST", "mnist", filepath.Join("MNIST", "raw")},
			Home:    lecunHome,
			Files: []File{
				mnistFile("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873",
					"440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
				mnistFile("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432",
					"3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
				mnistFile("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3",
					"8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
				mnistFile("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c",
					"f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
			},
			Paper: map[string]Figures{
				"LANN": {.9517, .0712}, "LBNN": {.9510, .0793}, "LMP": {.9643, .0683},
				"ANN": {.9724, .0515}, "BNN": {.9713, .0449}, "MP": {.9733, .0213},
				"CANN": {.9689, .0678}, "CBNN": {.9705, .0621}, "CFMP": {.9700, .0527},
				"FMP": {.9705, .0406},
			},
		},
		{
			Name: "cifar10", Kind: KindCIFAR10,
			Folders: []string{"cifar-10-batches-bin", "cifar10"},
			Home:    cifarHome,
			Files: []File{{
				Name: "cifar-10-binary.tar.gz", URLs: []string{kriz + "cifar-10-binary.tar.gz"},
				MD5:    "c32a1d4ab5d03f1284b67883e8d87530",
				SHA256: "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
				Max:    512 * mib,
			}},
			Unpack: map[string]int64{
				"data_batch_1.bin": batch, "data_batch_2.bin": batch, "data_batch_3.bin": batch,
				"data_batch_4.bin": batch, "data_batch_5.bin": batch,
				"test_batch.bin": batch, "batches.meta.txt": mib,
			},
			Paper: map[string]Figures{
				"LANN": {.5743, .0845}, "LBNN": {.5595, .0820}, "LMP": {.6896, .1053},
				"ANN": {.7863, .0729}, "BNN": {.7836, .0593}, "MP": {.8057, .0342},
				"CANN": {.7406, .2130}, "CBNN": {.7357, .1606}, "CFMP": {.7740, .1422},
				"FMP": {.7891, .0572},
			},
		},
		{
			Name: "cifar100", Kind: KindCIFAR100, Folders: []string{"cifar-100-binary", "cifar100"},
			Home: cifarHome,
			Files: []File{{
				Name: "cifar-100-binary.tar.gz", URLs: []string{kriz + "cifar-100-binary.tar.gz"},
				MD5:    "03b5dce01913d631647c71ecec9e9cb8",
				SHA256: "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
				Max:    512 * mib,
			}},
			Unpack: map[string]int64{"train.bin": 50_000 * 3074, "test.bin": 10_000 * 3074,
				"fine_label_names.txt": mib, "coarse_label_names.txt": mib},
			// The paper's task has 20 classes.
			Paper: map[string]Figures{
				"LANN": {.5736, .1804}, "LBNN": {.5626, .1842}, "LMP": {.6625, .1990},
				"ANN": {.7030, .0503}, "BNN": {.7010, .0385}, "MP": {.7095, .0274},
				"CANN": {.6840, .3158}, "CBNN": {.6950, .2458}, "CFMP": {.6973, .2221},
				"FMP": {.7032, .0423},
			},
		},
	}
}

// Names lists the names of the data sets of [All].
func Names() []string { return names(func(Known) bool { return true }) }

// Published lists those of [Names] that can be downloaded.
func Published() []string { return names(func(k Known) bool { return k.Files != nil }) }

// names lists the data sets of a kind, in the order of [All].
func names(want func(Known) bool) []string {
	var out []string
	for _, k := range All() {
		if want(k) {
			out = append(out, k.Name)
		}
	}
	return out
}

// Lookup returns the entry of [All] with the given name, and whether there is one.
func Lookup(name string) (Known, bool) {
	i := slices.IndexFunc(All(), func(k Known) bool { return k.Name == name })
	if i < 0 {
		return Known{Name: name}, false
	}
	return All()[i], true
}

// LookupPublished returns the entry of a data set that can be downloaded; any other name is an
// error.
func LookupPublished(name string) (Known, error) {
	if k, ok := Lookup(name); ok && k.Files != nil {
		return k, nil
	}
	return Known{}, fmt.Errorf("no download is known for data set %q; known are %s%s", name,
		suggest.Or(Published()...), suggest.DidYouMean(name, Published()))
}
