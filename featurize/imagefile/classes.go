package imagefile

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"fmp/onnx/printable"
)

// Classes maps the names that folders and lists use to labels: a class's name alone or, where
// ByNumber asks for it, its number alone. So no name is taken for a number: grades are called 1, 2
// and 3. Without Names the classes are called by their numbers. N is the number of classes, and
// Names has as many or none.
type Classes struct {
	Names    []string
	N        int
	ByNumber bool
}

// ByNumberFlag is the flag of commands that sets ByNumber, and ByNumberHelp its meaning.
const (
	ByNumberFlag = "class-numbers"
	ByNumberHelp = "folders and labels are the numbers of classes from 0, as labels of IDX files " +
		"are, not their names"
)

// Name returns the name of a class.
func (c Classes) Name(label int) string {
	if label >= 0 && label < len(c.Names) {
		return c.Names[label]
	}
	return strconv.Itoa(label)
}

// number returns the number that a text is, written as such numbers are. So 07 and +7 are no
// numbers: a folder of that name would be taken for class 7 unseen.
func (c Classes) number(text string) (int, bool) {
	i, err := strconv.Atoi(text)
	return i, err == nil && i >= 0 && i < c.N && strconv.Itoa(i) == text
}

// label returns the class that a name means. Its error lists the classes, 200 bytes of them, and
// says which flag or spelling would help. A name must match in its case and every byte. The first
// of two classes of one name is not preferred: that is an error.
func (c Classes) label(name string) (int, error) {
	number, is := c.number(name)
	switch {
	case is && (c.ByNumber || len(c.Names) == 0):
		return number, nil
	case c.ByNumber:
		return 0, fmt.Errorf("%q is no number of a class; with --%s they are 0 to %d", name,
			ByNumberFlag, c.N-1)
	}
	if i := slices.Index(c.Names, name); i >= 0 {
		if j := slices.Index(c.Names[i+1:], name); j >= 0 {
			return 0, fmt.Errorf("%q is the name of classes number %d and %d of the model: ask its "+
				"maker which it is, and name folders or labels by numbers (--%s)", name, i, i+1+j,
				ByNumberFlag)
		}
		return i, nil
	}
	known := fmt.Sprintf("0 to %d", c.N-1)
	if len(c.Names) > 0 {
		known = strings.Join(c.Names, ", ")
	}
	if len(known) > 200 {
		known = known[:200] + "..."
	}
	hint := ""
	if is {
		hint = fmt.Sprintf("; where names are numbers of classes (%d: %s), give --%s", number,
			c.Name(number), ByNumberFlag)
	}
	// combining marks
	if strings.ContainsFunc(name, func(r rune) bool { return r >= 0x300 && r < 0x370 }) {
		hint += "; its accents are characters of their own (Unicode NFD), those of " +
			"a class may not be"
	}
	return 0, fmt.Errorf("%q is no class of the model; it knows %s%s", name, known, hint)
}

// Mapped is the class that the images of a folder, or of a list's label, were taken for.
type Mapped struct {
	From   string `json:"from"` // folder or label, as its owner wrote it
	Class  string `json:"class"`
	Label  int    `json:"label"`
	Images int    `json:"images"`
}

// mapping counts images by the names that they came under. at has the place in list of each name,
// as names come many times.
type mapping struct {
	classes Classes
	list    []Mapped
	at      map[string]int
}

// class returns the label of a name. A name is looked up once, and listed where it is first met. An
// error is not kept.
func (m *mapping) class(name string) (int, error) {
	if i, ok := m.at[name]; ok {
		return m.list[i].Label, nil
	}
	label, err := m.classes.label(name)
	if err == nil {
		m.put(name, label)
	}
	return label, err
}

// put lists a name with its label. Names are kept in a form that is safe to print.
func (m *mapping) put(name string, label int) {
	if m.at == nil {
		m.at = map[string]int{}
	}
	m.at[name] = len(m.list)
	to := Mapped{From: printable.Line(name), Label: label}
	if label != Unlabelled {
		to.Class = printable.Line(m.classes.Name(label))
	}
	m.list = append(m.list, to)
}

// count counts an image that came under a name, and returns 1 + the name's place; 0 for no name.
func (m *mapping) count(name string) int {
	i, ok := m.at[name]
	if !ok {
		return 0
	}
	m.list[i].Images++
	return i + 1
}

// unclear returns an error for a label that is both the number of a class and the name of another.
// Labels of IDX files are numbers. A model of grades 1, 2 and 3 gives label 1 two meanings.
func (c Classes) unclear(label int) error {
	if i := slices.Index(c.Names, strconv.Itoa(label)); i >= 0 && i != label && !c.ByNumber {
		return fmt.Errorf("it is the number of class %s (from 0) and the name of class number "+
			"%d: where labels are numbers, give --%s; names are folders' or those of a .csv",
			c.Name(label), i, ByNumberFlag)
	}
	return nil
}

// MappingOf returns the classes that the folders or labels of a source were taken for, in the order
// in which they were met; nil where images have no labels. Once [Read] is done, they count the
// images that could be read, less those of [LeaveOut]. The list may be the source's own: callers do
// not change it.
func MappingOf(s Source) []Mapped {
	switch s := s.(type) {
	case *pictures:
		return s.mapped
	case *idx:
		m := mapping{classes: s.Classes}
		for label := range s.Classes.N {
			m.put(strconv.Itoa(label), label)
		}
		for _, y := range s.labels {
			m.list[y].Images++
		}
		for _, y := range s.left {
			m.list[y].Images--
		}
		return slices.DeleteFunc(m.list, func(m Mapped) bool { return m.Images == 0 })
	}
	return nil
}

// LeaveOut takes an image of a source out of the counts of [MappingOf]. It must be called once for
// an image.
func LeaveOut(s Source, item Item) {
	switch s := s.(type) {
	case *pictures:
		if item.from > 0 {
			s.mapped[item.from-1].Images--
		}
	case *idx:
		if item.Label != Unlabelled {
			s.left = append(s.left, item.Label)
		}
	}
}

// maxMapped bounds the lines that [PrintMapping] prints.
const maxMapped = 200

// PrintMapping prints one line for each folder or label: the class that it was taken for, and its
// images.
func PrintMapping(w io.Writer, prefix string, list []Mapped) error {
	var b strings.Builder
	for i, m := range list {
		if i == maxMapped {
			fmt.Fprintf(&b, "%sand %d more\n", prefix, len(list)-i)
			break
		}
		if m.Label == Unlabelled {
			fmt.Fprintf(&b, "%sfolder %s -> no class: %d images without a label\n", prefix,
				m.From, m.Images)
			continue
		}
		fmt.Fprintf(&b, "%sfolder or label %s -> class %s (number %d): %d images\n", prefix, m.From,
			m.Class, m.Label, m.Images)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
