package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"

	"fmp/featurize/imagefile"
	"fmp/onnx/regularfile"
)

// maxFolders bounds the table of an upload's folders: 4 MiB.
const maxFolders = 4 << 20

// foldersFile is the table of the classes that an upload's folders or labels were taken for. It
// stays beside the upload, and is not sent.
func foldersFile(upload string) string { return upload + ".classes.csv" }

// foldersTable is the table; nil where the list is empty.
func foldersTable(list []imagefile.Mapped) ([]byte, error) {
	if len(list) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	rows := [][]string{{"folder", "class", "number", "images"}}
	for _, m := range list {
		rows = append(rows, []string{m.From, m.Class, strconv.Itoa(m.Label), strconv.Itoa(m.Images)})
	}
	err := w.WriteAll(rows)
	return b.Bytes(), err
}

// enough leaves out classes of fewer images, which are not in the upload either.
func enough(list []imagefile.Mapped, atLeast int) []imagefile.Mapped {
	images := map[int]int{}
	for _, m := range list {
		images[m.Label] += m.Images
	}
	return slices.DeleteFunc(list, func(m imagefile.Mapped) bool { return images[m.Label] < atLeast })
}

// aTable reports whether a file is the table of an upload.
func aTable(was []byte) bool { return bytes.HasPrefix(was, []byte("folder,class,number,images\n")) }

// withTable is files of an upload after their table. Without classes that of an earlier upload goes.
func withTable(upload string, list []imagefile.Mapped, files ...content) ([]content, error) {
	table, err := foldersTable(list)
	return append([]content{{foldersFile(upload), table, aTable}}, files...), err
}

// explainFolders says in words which folders or labels an upload's classes come from; nothing where
// its table is not beside it.
func explainFolders(upload string) (string, error) {
	data, err := regularfile.ReadFile(foldersFile(upload), maxFolders)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	r := csv.NewReader(bytes.NewReader(data))
	r.FieldsPerRecord = 4
	rows, err := r.ReadAll()
	if err != nil || len(rows) == 0 {
		return "", fmt.Errorf("%s: %w", foldersFile(upload),
			errors.Join(err, errors.New("want lines of folder,class,number,images")))
	}
	text := "Its classes were taken from these folders or labels (" + foldersFile(upload) +
		", which stays here):\n"
	for _, row := range rows[1:] {
		text += fmt.Sprintf("- %s -> class %s (number %s): %s images\n", row[0], row[1],
			row[2], row[3])
	}
	return text, nil
}
