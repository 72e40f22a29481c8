// Package store keeps data sets in the data folder: it downloads the official archives, checks them,
// unpacks them, and takes in what the user has.
package store

import (
	"fmt"
	"strings"

	"fmp/onnx/suggest"
)

// File is one file of a source as it is published.
type File struct {
	Name string   // what it is kept as
	URLs []string // where it is published, tried in turn
	MD5  string   // checksum as published, hexadecimal
	// SHA256 is what a file with that MD5, which can be forged today, must have besides, hexadecimal.
	SHA256 string
	Max    int64 // bound on its size in bytes
}

// Source is a data set as it is published.
type Source struct {
	Name   string // the data set's name
	Folder string // its folder in the data folder
	Home   string // the page that describes it
	Files  []File
	// Unpack maps the files inside a tar.gz archive (by base name) that are wanted to their largest size; nil
	// where the files are used as they are.
	Unpack map[string]int64
}

const (
	lecun     = "https://ossci-datasets.s3.amazonaws.com/mnist/"
	lecunHome = "http://yann.lecun.com/exdb/mnist/"
	kriz      = "https://www.cs.toronto.edu/~kriz/"
	cifarHome = kriz + "cifar.html"
	mib       = 1 << 20
)

func mnistFile(name, md5, sha256 string) File {
	return File{Name: name, URLs: []string{lecun + name, "https://storage.googleapis.com/cvdf-datasets/mnist/" + name}, MD5: md5, SHA256: sha256, Max: 64 * mib}
}

// Sources lists the data sets that can be downloaded. The MD5 checksums of CIFAR stand on its home page; those
// of MNIST, whose page gives none, are the ones that torchvision and its mirrors publish. Nobody publishes SHA-256 at the source; those here
// are what many projects that fetch these files hold them to.
func Sources() []Source {
	batch := int64(10_000 * 3073)
	return []Source{
		{Name: "mnist", Folder: "MNIST", Home: lecunHome, Files: []File{
			mnistFile("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
			mnistFile("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
			mnistFile("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
			mnistFile("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
		}},
		{Name: "cifar10", Folder: "cifar-10-batches-bin", Home: cifarHome, Files: []File{
			{Name: "cifar-10-binary.tar.gz", URLs: []string{kriz + "cifar-10-binary.tar.gz"}, MD5: "c32a1d4ab5d03f1284b67883e8d87530", SHA256: "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd", Max: 512 * mib},
		}, Unpack: map[string]int64{
			"data_batch_1.bin": batch, "data_batch_2.bin": batch, "data_batch_3.bin": batch, "data_batch_4.bin": batch, "data_batch_5.bin": batch,
			"test_batch.bin": batch, "batches.meta.txt": mib,
		}},
		{Name: "cifar100", Folder: "cifar-100-binary", Home: cifarHome, Files: []File{
			{Name: "cifar-100-binary.tar.gz", URLs: []string{kriz + "cifar-100-binary.tar.gz"}, MD5: "03b5dce01913d631647c71ecec9e9cb8", SHA256: "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec", Max: 512 * mib},
		}, Unpack: map[string]int64{
			"train.bin": 50_000 * 3074, "test.bin": 10_000 * 3074, "fine_label_names.txt": mib, "coarse_label_names.txt": mib,
		}},
	}
}

// SourceOf finds a source by the data set's name.
func SourceOf(name string) (Source, error) {
	var names []string
	for _, s := range Sources() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Source{}, fmt.Errorf("no download is known for data set %q; known are %s%s", name, strings.Join(names, ", "), suggest.DidYouMean(name, names))
}
