package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"fmp/cmd/internal/outputs"
	"fmp/featurize/imagefile"
	"fmp/onnx/printable"
	"fmp/onnx/regularfile"
	"fmp/pipeline/classify"
	"fmp/pipeline/client"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
)

// written is the output of compress. Size, Dx and C are those of the points; N counts calibration
// points too.
type written struct {
	Upload string `json:"upload"`
	Bytes  int    `json:"bytes"`
	Client string `json:"client"`
	Round  uint64 `json:"round"`
	Model  string `json:"model"` // sha256
	N      int    `json:"n"`     // images or rows
	Size   int    `json:"size"`  // points
	Dx     int    `json:"dx"`
	C      int    `json:"classes"`
	// Calibration counts the images of n that are calibration points, and Precision is the number
	// format of an upload of moments.
	Calibration int    `json:"calibration,omitempty"`
	Precision   string `json:"precision,omitempty"`
	// Skipped counts files under the folder that are no images.
	Skipped int `json:"skipped,omitempty"`
	// Bad counts images that cannot be read (--on-bad skip), Few classes of too few images
	// (--at-least); all were left out.
	Bad int `json:"bad,omitempty"`
	Few int `json:"few,omitempty"`
	// Copies counts images that were left out as copies of others of their class.
	Copies int `json:"copies,omitempty"`
	// Folders are the classes that folders or labels were taken for.
	Folders []imagefile.Mapped `json:"folders,omitempty"`
}

// compressCommand declares fmp-edge compress. It makes a file and speaks to no server: join and
// send do that.
var compressCommand = command{
	name: "compress", args: "--model FILE --client NAME -o FILE SOURCE",
	short: "Turn labelled images, or feature rows, into an upload",
	example: `  fmp-edge compress --model client.onnx --client shop-17 -o shop-17.upload photos/
  fmp-edge compress --model client.onnx --client shop-17 -o shop-17.upload list.csv
  fmp-edge compress --model client.onnx --client a -o a.upload train-images-idx3-ubyte \
    --labels train-labels-idx1-ubyte --count 50
  fmp-edge compress --model private-client.onnx --client a -o a.upload --epsilon 4 photos/
  fmp-edge compress --model embedding.onnx --client a -o a.upload --rows features.npy \
    --labels labels.npy

SOURCE is a folder with one folder of images a class, named by the class (by its number with
--class-numbers); a .csv of path,label with paths relative to it; or an IDX file of images, plain or
.gz. Images are ` + imagefile.Formats + `;
` + imagefile.HEIFFormats + ` too where heif-dec, heif-convert or magick is on the PATH. Images of other formats are bad
images (--on-bad). Images are turned upright (EXIF) and brought to the model's size as
it says (stretch, crop or pad), by Catmull-Rom interpolation, to grey by ITU-R BT.601.`,
	flags: func(f *pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
		return compressFlags(f).run
	},
}

// compressing is the flags of compress. mostImages, mostBytes and server are set by join, and the
// fields behind them by run. join fills in the fields of the round before it calls run.
type compressing struct {
	// set tells flags that were given from defaults.
	set *pflag.FlagSet
	// model, output, labels and rows are files, and client a name; "" is none.
	model, client, output, labels, rows *string
	precision, onBad                    *string
	// round is the number that the upload states.
	round *uint64
	// pixels bounds an image that is decoded, and atLeast is the fewest images of a class.
	skip, count, threads, pixels, atLeast *int
	// calibrate is the number of calibration points that the owner grants, 0 for none.
	calibrate *int
	// approved and secret are files; yes is the digest of an extractor, and scope an approval's.
	approved, yes, scope, secret *string
	private                      privateFlags
	asJSON                       *bool

	// byNumber takes names of folders for numbers of classes.
	byNumber *bool

	mostImages, mostBytes int    // that the round takes; 0 where that is not known
	server                string // its public key; "" where that is not known
	// takes returns an error where the round may take no upload that comes after a time, and due is
	// when the reply comes.
	takes func(after time.Duration) error
	due   time.Time

	// copies and few count images and classes that were left out; mapped are the folders of the
	// others.
	copies, few int
	bytes       int // of an upload of moments at most; 0 for other uploads
	mapped      []imagefile.Mapped
}

// compressFlags declares the flags of compress, also in the set of join's own. join sets some of
// them by name, once it knows the round. --scope is for join alone, and hidden.
func compressFlags(f *pflag.FlagSet) *compressing {
	c := &compressing{
		set:    f,
		model:  f.String("model", "", "client graph that fmp fuse wrote; with --rows an embedding"),
		client: f.String("client", "", "name of this client, 1 to 128 bytes"),
		round:  f.Uint64("round", 0, "round of the federation"),
		output: f.StringP("output", "o", "",
			"upload to write, into a folder that is there; there whole or not at all"),
		precision: f.String("precision", string(federate.Single),
			"of the points: float32, float16 or int8"),
		labels: f.String("labels", "", "labels of an IDX file's images (IDX), of a folder's "+
			"images (.csv of path,label) or of --rows (.npy)"),
		rows:  f.String("rows", "", ".npy of feature rows [n, dx], in place of SOURCE"),
		skip:  f.Int("skip", 0, "images of an IDX file to leave out at its beginning"),
		count: f.Int("count", 0, "images of an IDX file to take; 0 takes all"),
		threads: f.Int("threads", 0,
			"threads of one operator, and images that are decoded at once; 0 is one a core"),
		pixels: f.Int("max-pixels", imagefile.MaxPixels,
			"largest image that is decoded, in pixels; each takes 2 to 8 bytes"),
		onBad: f.String("on-bad", "fail", "what to do about images that cannot be read: fail, or "+
			"skip as private rounds do; all are named"),
		atLeast: f.Int("at-least", 1, "leave out classes of fewer images; a mean of five or more "+
			"hides single images better than one of one"),
		calibrate: f.Int("calibrate", 0, "calibration points, 0 to 100 beside class means and to "+
			"10 beside moments: features of single images, one in five at most, for prediction "+
			"sets and temperature (docs/sets.md)"),
		secret: f.String("secret", "", "file of this client's secret that chooses the calibration "+
			"points; made where it is missing (default: fmp/calibration.key in the user's folder "+
			"for configuration)"),
		byNumber: f.Bool(imagefile.ByNumberFlag, false, imagefile.ByNumberHelp),
		approved: approvedFlag(f),
		yes: f.String(yesFlag, "", "`DIGEST` (sha256) of the extractor that may run on the "+
			"images, for scripts: the answer to the question about one that is unknown; any "+
			"other extractor is an error"),
		scope:   f.String("scope", client.Files, "what the extractor is approved for"),
		private: newPrivateFlags(f),
		asJSON:  f.Bool("json", false, "print JSON"),
		takes:   func(time.Duration) error { return nil },
	}
	outputs.Files(f, "output")
	signerFlags(f)
	if err := f.MarkHidden("scope"); err != nil { // join's
		panic(err)
	}
	return c
}

// check returns an error for flags that are wrong for any files. No file is read, and none is
// looked for. Flags of private rounds are checked later by privateFlags.fits, once the graph is
// known.
func (c *compressing) check() error {
	if err := checkReading("compress", *c.threads, *c.pixels, *c.onBad); err != nil {
		return err
	}
	for _, r := range []struct{ flag, value string }{{"--model", *c.model}, {"--client", *c.client},
		{"--output", *c.output}} {
		if r.value == "" {
			return usagef("compress: %s is missing; see fmp-edge compress --help", r.flag)
		}
	}
	if err := identity.CheckName(*c.client); err != nil {
		return usagef("compress: --client: %w", err)
	}
	switch federate.Precision(*c.precision) {
	case federate.Single, federate.Half, federate.Int8:
	default:
		return usagef("compress: --precision %q; allowed are %s, %s and %s", *c.precision,
			federate.Single, federate.Half, federate.Int8)
	}
	if *c.skip < 0 || *c.count < 0 {
		return usagef("compress: --skip %d and --count %d; allowed are numbers of at least 0",
			*c.skip, *c.count)
	}
	if *c.atLeast < 1 || *c.atLeast > maxItems {
		return usagef("compress: --at-least %d; allowed are 1 to %d", *c.atLeast, maxItems)
	}
	if *c.calibrate < 0 || *c.calibrate > federate.MaxCalibration {
		return usagef("compress: --calibrate %d; allowed are 0 to %d", *c.calibrate,
			federate.MaxCalibration)
	}
	return nil
}

// run checks flags and files, has the extractor approved, and makes the upload. No image is read
// before the approval. The order is: flags, graph, signature, kind of round, approval, places of
// outputs, images. A step that fails ends the command before any later one has an effect.
func (c *compressing) run(ctx context.Context, args []string, stdout, log io.Writer) error {
	if err := c.check(); err != nil {
		return err
	}
	if *c.rows != "" {
		return c.compressRows(ctx, args, stdout)
	}
	if len(args) != 1 {
		return usagef("compress: %d sources; want one folder, .csv or IDX "+
			"file, or --rows", len(args))
	}
	cl, err := openClient(*c.model, *c.threads)
	if err != nil {
		return refused("compress", err)
	}
	if err := checkSigned(c.set, *c.model, cl.Manifest.Digest, nil); err != nil {
		return err
	}
	if err := c.private.fits(c.set, *c.model, cl.Private()); err != nil {
		return err
	}
	if err := trust(ctx, cl, *c.scope, *c.approved, *c.yes, log); err != nil {
		return refused("compress", err)
	}
	// The table's name is of no flag, and is guarded as one.
	release, err := outputs.Claim(foldersFile(*c.output))
	if err != nil {
		return refused("compress", err)
	}
	defer release()
	if cl.Private() {
		return c.compressPrivate(ctx, cl, args[0], stdout, log)
	}
	src, others, err := c.source(cl, args[0], log)
	if err != nil {
		return err
	}
	defer src.Close()
	o := client.Options{Skip: *c.onBad == "skip", AtLeast: *c.atLeast, Calibrate: *c.calibrate,
		Progress: progress(log, time.Now)}
	if o.Calibrate > 0 {
		path := *c.secret
		if path == "" {
			if path, err = client.DefaultFile("calibration.key", "--secret"); err != nil {
				return err
			}
		}
		if o.Secret, err = client.LoadSecret(path); err != nil {
			return refused("compress", err)
		}
	}
	c.bytes = cl.Manifest.Bytes
	// left has an error for each image or class that is not in the upload.
	u, left, err := cl.Upload(ctx, src, o, *c.client)
	if err != nil {
		return refused("compress", err)
	}
	tell(log, cl, left)
	c.copies, c.few = cl.Copies, cl.Few
	c.mapped = enough(imagefile.MappingOf(src), *c.atLeast)
	if err := c.write(ctx, stdout, u, others.N, len(left)-cl.Few); err != nil {
		return err
	}
	return imagefile.PrintMapping(log, "fmp-edge: ", c.mapped)
}

// source opens labelled images, and says which files are none. A private round lets a list name an
// image again, as an error would tell of it. The source is the caller's to close.
func (c *compressing) source(cl *client.Client, path string,
	log io.Writer) (imagefile.Source, imagefile.LeftOut, error) {
	classes := cl.Classes()
	classes.ByNumber = *c.byNumber
	src, others, err := imagefile.Open(path,
		imagefile.Options{Fit: cl.Fit, Classes: classes, Labels: *c.labels, Skip: *c.skip,
			Count: *c.count, MaxPixels: *c.pixels, MaxItems: maxItems, Threads: *c.threads,
			Repeats: cl.Private()})
	if err != nil {
		return nil, others, refused("compress", err)
	}
	if others.N > 0 {
		fmt.Fprintf(log, "fmp-edge: under %s %v\n", path, others)
	}
	return src, others, nil
}

// tell names the images that were left out, and says how many were copies and of how many the graph
// made nothing. One feature that drowns the others is told of. In a private round log is held back
// until the reply.
func tell(log io.Writer, cl *client.Client, left []error) {
	for _, err := range left {
		fmt.Fprintf(log, "fmp-edge: left out: %v\n", err)
	}
	if cl.Copies > 0 {
		fmt.Fprintf(log, "fmp-edge: %d of %d images are copies of others and count once\n",
			cl.Copies, cl.Read)
	}
	if cl.Zeros > 0 {
		fmt.Fprintf(log, "fmp-edge: of %d images the client graph made no finite numbers; they "+
			"count as rows of zeros\n", cl.Zeros)
	}
	if h := cl.Heavy; h.Share > 0 {
		fmt.Fprintf(log, "fmp-edge: number %d of %d of the features, from 0, has %.0f%% of the "+
			"sum of all and varies, which drowns the others: who made the client graph should "+
			"take another layer (fmp fuse --layer)\n", h.Feature, cl.Manifest.Dx, 100*h.Share)
	}
}

// compressRows makes an upload of feature rows. Rows are [n, dx] and labels [n], each file of 64
// MiB at most. Rows are float32 and labels whole numbers; both are checked before the model is
// opened. An embedding gets no approval, as it sees features and no image. Classes of few rows stay
// in, as --at-least goes with images. Nothing is written before the signature of the embedding is
// checked.
func (c *compressing) compressRows(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) != 0 || *c.labels == "" {
		return usagef("compress: --rows wants --labels and no SOURCE; got %q",
			strings.Join(args, " "))
	}
	if err := rowsTake("compress", true, c.set, budgetNames...); err != nil {
		return err
	}
	x, err := classify.LoadRows(*c.rows, maxRowBytes, classify.FeatureRows)
	if err != nil {
		return refused("compress", err)
	}
	y, err := classify.LoadLabels(*c.labels, maxRowBytes, math.MaxInt32)
	if err != nil {
		return refused("compress", err)
	}
	points, f, err := compressRows(*c.model, *c.threads, x, y)
	if err != nil {
		return refused("compress", err)
	}
	if err := checkSigned(c.set, *c.model, f.Digest, nil); err != nil {
		return err
	}
	return c.write(ctx, stdout, &federate.Upload{N: len(y), Model: f.Digest, Points: points}, 0, 0)
}

// imageNames are the names of flags that go with images alone.
var imageNames = []string{"at-least", "approved", yesFlag, "calibrate", "secret", "skip", "count",
	"on-bad", "max-pixels", imagefile.ByNumberFlag}

// rowsTake returns an error where a command has feature rows, and a flag that goes with images.
// others are further flags that do not go with rows.
func rowsTake(command string, rows bool, f *pflag.FlagSet, others ...string) error {
	for _, name := range slices.Concat(others, imageNames) {
		if rows && f.Changed(name) {
			return usagef("%s: --%s goes with images, and these are feature rows", command, name)
		}
	}
	return nil
}

// write writes an upload and says so. skipped files were no images, and bad images could not be
// read. N counts calibration points too, which the upload's own N leaves out. u is changed: its
// round, client and precision are set here. The upload is encoded whole before a file is touched. A
// command that is stopped by then writes none.
func (c *compressing) write(ctx context.Context, stdout io.Writer, u *federate.Upload, skipped,
	bad int) error {
	// Only join knows the round's bound.
	if c.mostImages > 0 && u.N > c.mostImages {
		return usagef("compress: %d images; the round allows %d: give fewer", u.N, c.mostImages)
	}
	u.Round, u.Client, u.Precision = *c.round, *c.client, federate.Precision(*c.precision)
	data, err := u.EncodeWithin(c.bytes)
	if err != nil {
		return refused("compress", err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	files, err := withTable(*c.output, c.mapped, content{*c.output, data, anUpload})
	if err != nil {
		return err
	}
	if err := put("compress", files); err != nil {
		return err
	}
	w := written{Folders: c.mapped, Upload: *c.output, Bytes: len(data), Client: u.Client,
		Round: u.Round, Model: u.Model, N: u.N, Size: u.Points.N, Dx: u.Points.Dx, C: u.Points.C,
		Skipped: skipped, Bad: bad, Few: c.few, Copies: c.copies}
	if u.Within != nil {
		w.Calibration, w.Precision = len(u.Within.Labels), string(u.Precision)
		w.N += w.Calibration
	}
	if p := u.Calibration; p != nil {
		w.Calibration = p.N
		w.N += p.N
	}
	if *c.asJSON {
		return printable.WriteJSON(stdout, w)
	}
	if u.Within != nil {
		_, err = fmt.Fprintf(stdout, "upload: %s (%d bytes of %s; moments of %d numbers and %d "+
			"classes from n = %d, %d of them calibration points)\n", w.Upload, w.Bytes, w.Precision,
			w.Dx, w.C, w.N, w.Calibration)
		return err
	}
	_, err = fmt.Fprintf(stdout, "upload: %s (%d bytes; %d points of dx %d and %d classes "+
		"from n = %d%s)\n", w.Upload, w.Bytes, w.Size, w.Dx, w.C, w.N, ofCalibration(w.Calibration))
	return err
}

// ofCalibration says that some of the images are calibration points. It is for the line of an
// upload of points; that of moments has words of its own.
func ofCalibration(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of them calibration points", n)
}

// maxFolders bounds the table of an upload's folders: 4 MiB. A line has some dozens of bytes, so
// that this is room for 10^5 folders.
const maxFolders = 4 << 20

// foldersFile is the table of the classes that an upload's folders or labels were taken for. It
// stays beside the upload, and is not sent. It tells names of folders, which the upload does not.
func foldersFile(upload string) string { return upload + ".classes.csv" }

// foldersTable is the table; nil where the list is empty. It is CSV with a heading, by which aTable
// knows it again. A row is the folder, the class, its number, and the number of images.
// [explainFolders] reads it back.
func foldersTable(list []imagefile.Mapped) ([]byte, error) {
	if len(list) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	rows := [][]string{{"folder", "class", "number", "images"}}
	for _, m := range list {
		rows = append(rows,
			[]string{m.From, m.Class, strconv.Itoa(m.Label), strconv.Itoa(m.Images)})
	}
	err := w.WriteAll(rows)
	return b.Bytes(), err
}

// enough leaves out classes of fewer images, which are not in the upload either. Several folders
// may be of one class, whose images count together. list is changed.
func enough(list []imagefile.Mapped, atLeast int) []imagefile.Mapped {
	images := map[int]int{}
	for _, m := range list {
		images[m.Label] += m.Images
	}
	return slices.DeleteFunc(list,
		func(m imagefile.Mapped) bool { return images[m.Label] < atLeast })
}

// aTable reports whether a file is the table of an upload. Another file in that place is the
// owner's, and is not written over. The heading alone is compared. The lines below it may have been
// edited by hand.
func aTable(was []byte) bool { return bytes.HasPrefix(was, []byte("folder,class,number,images\n")) }

// withTable is files of an upload after their table. Without classes that of an earlier upload
// goes. It comes first, as the upload is there last. The caller gives the upload last, as [content]
// has it. An empty table has nil data, which [content] has removed.
func withTable(upload string, list []imagefile.Mapped, files ...content) ([]content, error) {
	table, err := foldersTable(list)
	return append([]content{{foldersFile(upload), table, aTable}}, files...), err
}

// explainFolders says in words which folders or labels an upload's classes come from; nothing where
// its table is not beside it. A table is data from elsewhere: it is bounded, and each line must
// have four fields. Fields are printed as they are: the output's writer makes them harmless.
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

// progressEvery is how often a command says how far it is. Shorter work says nothing. A log of a
// day's work so has fewer than 9000 of these lines.
const progressEvery = 10 * time.Second

// progress returns a function that says in a log how many images of how many were read, with their
// rate and the time left. now tells the time. Time left is elapsed/done for each image that is
// left. It is for one goroutine. The last image is not told of, as the upload's own line follows.
// Rates are means since the start.
func progress(log io.Writer, now func() time.Time) func(done, total int) {
	start := now()
	last := start
	return func(done, total int) {
		at := now()
		if at.Sub(last) < progressEvery || done < 1 || done >= total {
			return
		}
		last = at
		each := at.Sub(start) / time.Duration(done)
		left := (each * time.Duration(total-done)).Round(time.Second)
		fmt.Fprintf(log, "fmp-edge: images: %d of %d (%d%%), %.3g/s, %v left\n", done, total,
			100*done/total, 1/each.Seconds(), left)
	}
}
