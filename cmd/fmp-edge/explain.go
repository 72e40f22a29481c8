package main

import (
	"fmt"
	"slices"
	"strings"

	"fmp/pipeline/client"
	"fmp/pipeline/federate"
	"fmp/pipeline/moments"
	"fmp/pipeline/privacy"
)

// fewImages is the number of images behind a mean below which the explanation warns: a mean of one
// image is that image's own features. Five is a convention of small counts, and no proof of
// privacy.
const fewImages = 5

// explainUpload describes in words the content of a plain upload. A mean's number of images is its
// mass less the calibration points, which i counts in. It need not be whole: half an image less
// than fewImages is still enough. The text is for the owner of the images to read before sending;
// its form is no interface.
func explainUpload(i uploadInfo, u *federate.Upload) string {
	var few []string
	means := slices.Clone(i.ClassMass)
	for _, y := range singles(u) {
		means[y]--
	}
	for c, mass := range means {
		if mass > 0 && mass < fewImages-0.5 {
			few = append(few, fmt.Sprintf("number %d (%.3g)", c, mass))
		}
	}
	about, numbers, averages := "", i.Dx, "of images of a class, with the class and their number"
	if u.Points.Indices() == nil { // a point is of several classes
		about, numbers, averages = "about ", i.Dx+i.C, "and labels of images, with a mass"
	}
	text := fmt.Sprintf(`What leaves the machine with this file, %d bytes:
- that client %q takes part in round %d, with the client graph of sha256 %s
- that it has %d images, and %show many of each of %d classes: %.4g
- %d points of %d numbers each (%s), averages over the features %s
%sIt holds no image and no file name. It is not private: who has an image can test whether it is
behind the averages, and the fewer images are behind one the better.
`, i.Bytes, i.Client, i.Round, i.Model, i.N, about, i.C, i.ClassMass, i.Size, numbers, i.Precision,
		averages, explainMore(u))
	if len(few) > 0 {
		text += fmt.Sprintf("Classes of fewer than %d images (the average of one "+
			"image is that image's own features): %s; --at-least %d leaves them out.\n", fewImages,
			strings.Join(few, ", "), fewImages)
	}
	return text
}

// singles are the classes of the calibration points. Both kinds of uploads have them in other
// fields.
func singles(u *federate.Upload) (all []int) {
	if u.Within != nil {
		all = u.Within.Labels
	}
	if u.Calibration != nil {
		for _, y := range u.Calibration.Y {
			all = append(all, int(y))
		}
	}
	return all
}

// explainMore describes in words the content of an upload beside averages or points: scatter and
// calibration points of moments, calibration points of class means, and the curve. The scatter has
// K(K+1)/2 numbers at most, the upper half of a symmetric matrix.
func explainMore(u *federate.Upload) (text string) {
	if w := u.Within; w != nil {
		text = fmt.Sprintf("- the scatter of the features within classes, %d numbers\n",
			len(w.Data)) + explainSingles(len(w.Labels), w.K)
	}
	if s := u.Calibration; s != nil {
		text += explainSingles(s.N, s.Dx)
	}
	if u.Curve != nil {
		text += fmt.Sprintf("- a curve of %d numbers: sums over up to %d of the images of how "+
			"well the others tell their classes\n",
			moments.Temperatures, moments.MaxCurveImages)
	}
	return text
}

// explainSingles describes in words calibration points, which both forms of uploads have.
func explainSingles(n, numbers int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("- the features of %d single images, %d numbers each, with their classes, "+
		"by which the server makes prediction sets and may set its temperature; it can tell that "+
		"these images took part, and the classifier tells their scores\n", n, numbers)
}

// explainRelease describes in words the content of a private upload, and the promise of its noise.
// A sum is K coordinates and a count, in whole steps; share says that the message is one of two.
// Sizes of steps are privacy.Steps for a norm of 1, and privacy.CountSteps for one image.
func explainRelease(w released, share bool) string {
	text := fmt.Sprintf(`What leaves the machine with this file, %d bytes:
- that client %q takes part in round %d, with the client graph of sha256 %s
`, w.Bytes, w.Client, w.Round, w.Model)
	if share {
		text += fmt.Sprintf("- one of two shares of the sums of %d classes, %d coordinates and a "+
			"count each: random numbers without the other's\n", w.Classes, w.Coordinates)
	} else {
		text += fmt.Sprintf("- for each of %d classes the sums of %d coordinates and a count, "+
			"%d whole numbers in all; an image adds %d to its class's count, and to the sums a "+
			"vector of length %d at most\n", w.Classes, w.Coordinates, w.Classes*(w.Coordinates+1),
			privacy.CountSteps, privacy.Steps)
	}
	holds := ", no file name and no number of images.\n"
	if w.Budget.Noise == privacy.Trusted {
		holds = " and no file name. The server reads the exact number of images of each class, " +
			"and of a class with one image that image's own coordinates.\n"
	}
	return text + "It holds no image" + holds + w.Budget.Promise(w.Classes)
}

// explainGraph describes in words the content of an upload that a client graph would make. Sizes
// are bounds: a client sends the classes that it has. A float32 has four bytes, and each of S
// points PointWidth numbers, C shares and a mass. The scatter of K numbers is symmetric, so that
// K(K+1)/2 of them suffice.
func explainGraph(c *client.Client) string {
	f := c.Manifest
	text := "What would leave the machine with an upload that this graph makes:\n"
	switch {
	case c.Private():
		text += fmt.Sprintf("- for each of %d classes the sums of %d coordinates and a count, "+
			"%d whole numbers in all (8 bytes each), with noise as the round has it; no number "+
			"of images, unless the noise is trusted: then the server reads that of each class\n",
			f.C, f.K, f.C*(f.K+1))
	case f.Bytes > 0:
		text += fmt.Sprintf("- the number of images\n- for each class with "+
			"images, at most %d, their number, and the mean of %d numbers made of each image\n"+
			"- the scatter of these numbers within classes, at most %d; %d bytes at most in all\n"+
			"- with --calibrate the %d numbers of the requested number "+
			"of images, one in five and at most %d, with their classes\n", f.C, f.PointWidth(),
			f.PointWidth()*(f.PointWidth()+1)/2, f.Bytes, f.PointWidth(), moments.MaxCalibration)
	case f.ClassMeans:
		text += fmt.Sprintf("- the number of images\n- for each class with images, at most "+
			"%d, their number, and the mean of %d numbers made of each image; %d bytes at most "+
			"in all (float32)\n- with --calibrate the same numbers of the requested number of "+
			"images, with their classes\n", f.C, f.PointWidth(), f.S*4*(f.PointWidth()+f.C+1))
	default:
		text += fmt.Sprintf("- the number of images\n"+
			"- %d points of %d numbers, each a weighted average over images, and their masses, "+
			"which tell about how many images each class has; %d bytes in all (float32)\n", f.S,
			f.PointWidth()+f.C, f.S*4*(f.PointWidth()+f.C+1))
	}
	if f.Bytes > 0 && !c.Private() {
		text += fmt.Sprintf("- where classes have three images, a curve of %d numbers: sums of "+
			"how well the images tell each other's classes\n", moments.Temperatures)
	}
	text += "and no image and no file name. The numbers are made by the extractor: " +
		described(c) + ".\n"
	if !c.Private() && f.Dx >= c.Parsed.Pixels {
		text += "It gives as many numbers as an image has: they can be the image itself.\n"
	}
	return text + "All else in the graph is, node by node, what fmp fuse makes.\n"
}
