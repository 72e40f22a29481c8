package docs

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"fmp/onnx/must"
	"fmp/pipeline/federate/uploadpb"
)

// TestManagerPage: the page for those who answer for the data has a row for each field of an upload
// that is made of images, and its assessment names what leaves by default.
func TestManagerPage(t *testing.T) {
	const plain, scatter, curve, single, private = "| the upload, plain |", "| scatter of an upload of moments |",
		"| curve of an upload of moments |", "| calibration points, if you grant them",
		"| the upload, private (`noise: local`) |"
	rows := map[protoreflect.Name]string{"n": plain, "points": plain, "masses": plain, "point_classes": plain,
		"scatter": scatter, "dof": scatter, "curve": curve, "calibration": single, "calibration_classes": single,
		"values": private, "input_share": "| shares of a round with two servers |"}
	for _, name := range []protoreflect.Name{"format", "round", "client", "model", "dx", "classes", "size", "scale",
		"checksum", "scatter_scale", "coordinates", "epsilon", "delta", "unit", "relation", "noise", "server",
		"nonce", "public_share"} { // of no image, or the scale of numbers that have a row
		rows[name] = ""
	}
	page := string(must.Get(os.ReadFile("data-manager.md"))(t))
	for _, m := range []protoreflect.ProtoMessage{&uploadpb.Upload{}, &uploadpb.Release{}} {
		fields := m.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			name := fields.Get(i).Name()
			if row, ok := rows[name]; !ok || !strings.Contains(page, "\n"+row) {
				t.Errorf("field %s of an upload: no row %q in data-manager.md", name, row)
			}
		}
	}
	for _, line := range strings.Split(page, "\n") {
		for _, start := range []string{"| What leaves the building?", "| description of the processing"} {
			if strings.HasPrefix(line, start) && !(strings.Contains(line, "scatter") && strings.Contains(line, "curve")) {
				t.Errorf("scatter and curve are missing: %s", line)
			}
		}
	}
}
