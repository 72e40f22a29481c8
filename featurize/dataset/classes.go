package dataset

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fmp/onnx/suggest"
)

// countClasses returns the number of classes that a choice of one whole number keeps, counted from
// the first, 0 for all, as an empty choice says too; false where the choice is a list.
func countClasses(choice string) (int, bool) {
	n, err := strconv.Atoi(cmp.Or(strings.TrimSpace(choice), "0"))
	return n, err == nil
}

// numbersOf returns the number that each class is chosen by, and says if these are the order from 0
// or, where a class is called by another number, as a folder 7 is, the names (-1: none). A name
// such as 07 counts as the number 7.
func numbersOf(names []string) (numbers []int, are string) {
	order, named, others := make([]int, len(names)), make([]int, len(names)), false
	for c, name := range names {
		order[c], named[c] = c, -1
		if n, err := strconv.Atoi(name); err == nil {
			named[c], others = n, others || n != c
		}
	}
	if others {
		return named, "numbers are the classes' names"
	}
	return order, fmt.Sprintf("numbers go from 0 to %d", len(names)-1)
}

// listOf returns a list of classes by their numbers, as an example. Names stand for numbers where
// fewer than two classes have one.
func listOf(names []string) string {
	numbers, _ := numbersOf(names)
	numbers = slices.DeleteFunc(numbers, func(n int) bool { return n < 0 })
	slices.Sort(numbers)
	if len(numbers) < 2 {
		return names[0] + "," + names[len(names)-1]
	}
	return fmt.Sprintf("%d,%d", numbers[0], numbers[len(numbers)-1])
}

// parseClasses reads a choice among the classes called names: their names, numbers ([numbersOf])
// and ranges of numbers (20-39), separated by commas. It returns their indices in ascending order.
// Both ends of a range must be numbers of classes. Numbers between them that no class has are
// passed over. A class that is chosen twice is an error. It takes O(classes^2) steps.
func parseClasses(choice string, names []string) ([]int, error) {
	var out []int
	numbers, are := numbersOf(names)
	add := func(c int) error {
		if slices.Contains(out, c) {
			return fmt.Errorf("class %d (%s) is given twice", c, names[c])
		}
		out = append(out, c)
		return nil
	}
	for _, entry := range strings.Split(choice, ",") {
		entry = strings.TrimSpace(entry)
		// A name comes first, as it may look like a range.
		if c := slices.Index(names, entry); c >= 0 {
			if err := add(c); err != nil {
				return nil, err
			}
			continue
		}
		lo, hi, isRange := strings.Cut(entry, "-")
		if !isRange {
			hi = lo
		}
		from, errFrom := strconv.Atoi(strings.TrimSpace(lo))
		to, errTo := strconv.Atoi(strings.TrimSpace(hi))
		if errFrom != nil || errTo != nil {
			return nil, fmt.Errorf("%q is no class; give names, numbers or ranges (%s)%s",
				entry, are, suggest.DidYouMean(entry, names))
		}
		if from > to || !slices.Contains(numbers, from) || !slices.Contains(numbers, to) {
			return nil, fmt.Errorf("%q is no class or range of classes; %s", entry, are)
		}
		for c, n := range numbers {
			if n < from || n > to {
				continue
			}
			if err := add(c); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// choose keeps the chosen classes ("" or "0": all; a whole number: that many, from the first;
// otherwise see parseClasses), renumbered from 0 in the order of the data set. The training images
// of the others move to Extra, except those of the excluded classes, which are dropped; so are the
// test images of both. Labels of chosen classes come first, then those of the spare ones, each in
// the order of before. An error leaves the data set as it was.
func (ds *Dataset) choose(choice, exclude string) error {
	all := len(ds.Classes)
	// Classes that are kept go into Train and Test, those to drop nowhere, and the others into
	// Extra.
	keep := make([]bool, all)
	count, counted := countClasses(choice)
	every := counted && count == 0
	if counted {
		count = cmp.Or(count, all)
		if count < 2 || count > all {
			_, are := numbersOf(ds.Classes)
			return fmt.Errorf("dataset.classes is %d; allowed are 2 to %d, 0 for all, or a list "+
				"such as %s (%s)", count, all, listOf(ds.Classes), are)
		}
		for c := range count {
			keep[c] = true
		}
	} else {
		chosen, err := parseClasses(choice, ds.Classes)
		if err != nil {
			return fmt.Errorf("dataset.classes is %q: %w", choice, err)
		}
		for _, c := range chosen {
			keep[c] = true
		}
	}
	drop := make([]bool, all)
	if strings.TrimSpace(exclude) != "" {
		out, err := parseClasses(exclude, ds.Classes)
		if err != nil {
			return fmt.Errorf("classes to exclude %q: %w", exclude, err)
		}
		for _, c := range out {
			if keep[c] && !every {
				return fmt.Errorf("class %d (%s) is chosen and excluded; leave it out of one", c,
					ds.Classes[c])
			}
			keep[c], drop[c] = false, true
		}
	}
	var chosen, extra []string
	label := make([]int, all) // the new label, of a kept class or of a spare one
	for c, name := range ds.Classes {
		if keep[c] {
			label[c] = len(chosen)
			chosen = append(chosen, name)
		}
	}
	for c, name := range ds.Classes {
		if !keep[c] && !drop[c] {
			label[c] = len(chosen) + len(extra)
			extra = append(extra, name)
		}
	}
	// Nothing is left out, and nothing is copied.
	if len(chosen) == all {
		return nil
	}
	if len(chosen) < 2 {
		return fmt.Errorf("dataset.classes is %q, which leaves %d classes; choose 2 or more of %d",
			choice, len(chosen), all)
	}
	train, err := ds.Train.pick(label, func(y int) bool { return keep[y] })
	if err != nil {
		return err
	}
	spare, err := ds.Train.pick(label, func(y int) bool { return !keep[y] && !drop[y] })
	if err != nil {
		return err
	}
	test, err := ds.Test.pick(label, func(y int) bool { return keep[y] })
	if err != nil {
		return err
	}
	ds.Train, ds.Test, ds.Extra, ds.Classes, ds.ExtraClasses = train, test, spare, chosen, extra
	return nil
}

// pick copies the images whose label keep wants, with their labels translated. Their order stays.
// An image that is held in memory is copied. Files are not read: their names are copied.
func (p *Labelled) pick(label []int, keep func(y int) bool) (Labelled, error) {
	var idx, labels []int
	for i, y := range p.Labels {
		if keep(y) {
			idx, labels = append(idx, i), append(labels, label[y])
		}
	}
	im, err := p.Select(idx)
	if err != nil {
		return Labelled{}, err
	}
	return Labelled{Images: *im, Labels: labels}, nil
}

// holdOut moves the last share of the training images of every class without test images to the
// test set. Of n images of a class share n are moved, rounded to a whole number. Nothing random
// takes part: the same files give the same test images. Images of a folder are in an order by hash,
// so that the last of them are no kind apart. An error leaves the data set as it was.
func (ds *Dataset) holdOut(share float64) error {
	if !(share >= 0 && share < 1) {
		return fmt.Errorf("dataset.splits.test is %v; allowed are 0 to below 1", share)
	}
	if share == 0 {
		return nil
	}
	left := make([]int, len(ds.Classes)) // training images of the class that stay
	for _, y := range ds.Train.Labels {
		left[y]++
	}
	for _, y := range ds.Test.Labels {
		// Such a class has test images of its own.
		left[y] = 0
	}
	without := 0
	for c, n := range left {
		if n > 0 {
			without++
			// Half an image is rounded up.
			left[c] = n - int(share*float64(n)+0.5)
		} else {
			// Classes with test images never run out, and give none.
			left[c] = ds.Train.N
		}
	}
	if without == 0 {
		return fmt.Errorf("dataset.splits.test is %v and every class has test images of its own; "+
			"leave it at 0", share)
	}
	// From here on left counts down the images of a class that are still to stay.
	var stay, move []int
	for i, y := range ds.Train.Labels {
		if left[y]--; left[y] >= 0 {
			stay = append(stay, i)
		} else {
			move = append(move, i)
		}
	}
	test, err := ds.Train.Subset(move)
	if err != nil {
		return err
	}
	train, err := ds.Train.Subset(stay)
	if err != nil {
		return err
	}
	if ds.Test.N > 0 {
		// Test images that were there come first.
		if test.Lazy() {
			test.files.paths = append(ds.Test.files.paths, test.files.paths...)
		} else {
			test.Pix = append(ds.Test.Pix, test.Pix...)
		}
		test.Labels = append(ds.Test.Labels, test.Labels...)
		test.N += ds.Test.N
	}
	ds.Notes = append(ds.Notes,
		fmt.Sprintf("%d of %d classes have no test images: %d training images, the last of each "+
			"of these classes, are scored in their place", without, len(ds.Classes), len(move)))
	ds.Train, ds.Test = *train, *test
	return nil
}
