package docs

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Bounds of the running text of a page. Tables, code and headings do not count.
const (
	wordsPerSentence = 22.0
	numbersPer100    = 4.0
)

var (
	fenced     = regexp.MustCompile("(?s)```.*?```")
	comment    = regexp.MustCompile(`(?s)<!--.*?-->`)
	inline     = regexp.MustCompile("`[^`]*`")
	target     = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	address    = regexp.MustCompile(`https?://\S+|arXiv:?\s?[\d.]+`)
	sentence   = regexp.MustCompile(`[.?!][)*"]*(\s|$)`)
	closed     = regexp.MustCompile(`[.?!]\W*$`)
	number     = regexp.MustCompile(`^[-+±(]*[.]?\d[\d,.]*[%)×]*[.,:;)]*$`)
	wordful    = regexp.MustCompile(`[\p{L}\d]`)
	listOrQuot = regexp.MustCompile(`^\s*([-*>]|\d+\.)\s+`)
)

// running returns the paragraphs and list items of a page in Markdown, without tables, code, headings and addresses.
func running(page string) []string {
	page = comment.ReplaceAllString(fenced.ReplaceAllString(page, "\n\n"), "")
	var out []string
	var current strings.Builder
	flush := func() {
		if s := strings.TrimSpace(current.String()); s != "" {
			out = append(out, s)
		}
		current.Reset()
	}
	lines := bufio.NewScanner(strings.NewReader(page))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, "|") || strings.HasPrefix(trimmed, "!["):
			flush()
			continue
		case listOrQuot.MatchString(line):
			flush()
			line = listOrQuot.ReplaceAllString(line, "")
		}
		line = target.ReplaceAllString(line, "$1")
		line = inline.ReplaceAllString(line, "code")
		current.WriteString(address.ReplaceAllString(line, "address") + " ")
	}
	flush()
	return out
}

// count returns the words, sentences and numbers of running text. A colon or a semicolon ends none.
func count(paragraphs []string) (words, sentences, numbers int) {
	for _, p := range paragraphs {
		sentences += len(sentence.FindAllString(p, -1))
		if !closed.MatchString(p) {
			sentences++
		}
		for w := range strings.FieldsSeq(p) {
			if !wordful.MatchString(w) {
				continue
			}
			words++
			if number.MatchString(w) {
				numbers++
			}
		}
	}
	return words, sentences, numbers
}

// TestCount holds the counting to a text whose figures are known.
func TestCount(t *testing.T) {
	text := "# A heading of 9 words\n\nOne fact of five words. Two: 3 and `4 x 5`." +
		"\n\n| 1 | 2 |\n\n- item [with a link](http://x/1)\n```sh\nrun 7\n```\n"
	words, sentences, numbers := count(running(text))
	if words != 13 || sentences != 3 || numbers != 1 {
		t.Errorf("%d words, %d sentences and %d numbers; want 13, 3 and 1", words, sentences, numbers)
	}
}

// TestPlainEnglish holds the running text of every page to short sentences, and figures to tables.
func TestPlainEnglish(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "decisions/*.md", "../README.md", "../CONTRIBUTING.md", "../SECURITY.md", "../onnx/README.md",
		"../assets/models/README.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	for _, p := range pages {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		words, sentences, numbers := count(running(string(text)))
		if words == 0 {
			continue
		}
		length, figures := float64(words)/float64(sentences), 100*float64(numbers)/float64(words)
		t.Logf("%-30s %5d words, %4.1f a sentence, %4.1f numbers a hundred words", p, words, length, figures)
		if length > wordsPerSentence || figures > numbersPer100 {
			t.Errorf("%s: %.1f words a sentence and %.1f numbers a hundred words; at most %.0f and %.0f: state one fact a sentence, and figures "+
				"in tables", p, length, figures, wordsPerSentence, numbersPer100)
		}
	}
}
