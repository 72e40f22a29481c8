/* usage: main CLASSIFIER CLIENT KEY FOLDER, where FOLDER/images.txt has a path and a label a line. Writes predictions.txt, c.upload and
 * c.evaluation.json there; exits with 1 where the library does not do what fmp.h says. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../fmp.h"

#define MOST 1000
#define CHECK(what)                                                      \
  do {                                                                   \
    if (!(what)) {                                                       \
      fprintf(stderr, "line %d: %s\n", __LINE__, #what);                 \
      exit(1);                                                           \
    }                                                                    \
  } while (0)

static char *error;

/* refuses checks that a call failed, with a message that has a part. */
static void refuses(int code, const char *part) {
  if (code != FMP_ERROR || error == NULL || strstr(error, part) == NULL) {
    fprintf(stderr, "code %d, message %s; want one with %s\n", code, error ? error : "none", part);
    exit(1);
  }
  fmp_free(error);
  error = NULL;
}

static void works(int code) {
  if (code != FMP_OK) {
    fprintf(stderr, "%s\n", error ? error : "no message");
    exit(1);
  }
}

static fmp_bytes file(const char *path) {
  FILE *f = fopen(path, "rb");
  CHECK(f != NULL);
  fseek(f, 0, SEEK_END);
  long n = ftell(f);
  rewind(f);
  void *data = malloc(n);
  CHECK(fread(data, 1, n, f) == (size_t)n);
  fclose(f);
  return (fmp_bytes){data, n};
}

static void store(const char *folder, const char *name, fmp_buffer b) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "wb");
  CHECK(f != NULL && fwrite(b.data, 1, b.size, f) == b.size && fclose(f) == 0);
  fmp_free(b.data);
}

static fmp_handle classifier, client;
static fmp_images images;
static float *want;
static size_t classes;

static void *again(void *unused) {
  float *p = malloc(images.n * classes * sizeof *p);
  fmp_predictions out = {.classes = classes, .probabilities = p};
  for (int i = 0; i < 3; i++) {
    CHECK(fmp_predict(classifier, &images, &out, NULL) == FMP_OK);
    CHECK(memcmp(p, want, images.n * classes * sizeof *p) == 0);
  }
  free(p);
  return unused;
}

int main(int argc, char **argv) {
  CHECK(argc == 5);
  static fmp_bytes items[MOST];
  static int32_t labels[MOST];
  char path[4096], line[4000];
  snprintf(path, sizeof path, "%s/images.txt", argv[4]);
  FILE *list = fopen(path, "r");
  CHECK(list != NULL);
  while (images.n < MOST && fscanf(list, "%3999s %d", line, &labels[images.n]) == 2) items[images.n++] = file(line);
  fclose(list);
  images.items = items;
  images.labels = labels;

  char *version = fmp_version();
  CHECK(version != NULL && strlen(version) > 0);
  fmp_free(version);

  works(fmp_classifier_open(argv[1], &classifier, &error));
  fmp_bytes graph = file(argv[2]);
  works(fmp_client_load(graph.data, graph.size, NULL, &client, &error));
  char *json;
  works(fmp_describe(classifier, &json, &error));
  CHECK(strstr(json, "\"kind\":\"classifier\"") != NULL && strstr(json, "\"classes\":[\"0\"") != NULL);
  fmp_free(json);

  classes = 10;
  want = malloc(images.n * classes * sizeof *want);
  float *low = malloc(images.n * classes * sizeof *low), *high = malloc(images.n * classes * sizeof *high);
  float *disagreement = malloc(images.n * sizeof *disagreement);
  fmp_predictions out = {.classes = classes, .probabilities = want, .low = low, .high = high, .disagreement = disagreement};
  works(fmp_predict(classifier, &images, &out, &error));
  snprintf(path, sizeof path, "%s/predictions.txt", argv[4]);
  FILE *f = fopen(path, "w");
  for (size_t i = 0; i < images.n * classes; i++) {
    CHECK(0 <= low[i] && low[i] <= high[i] && high[i] <= 1);
    fprintf(f, "%.9g\n", want[i]);
  }
  fclose(f);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, again, NULL) == 0);
  for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);

  fmp_buffer b = {0};
  fmp_upload how = {.name = "site", .round = 3};
  works(fmp_compress(client, &images, &how, &b, &error));
  store(argv[4], "c.upload", b);
  fmp_evaluation counts = {.key = file(argv[3]), .round = 3};
  works(fmp_evaluate(classifier, &images, &counts, &b, &error));
  store(argv[4], "c.evaluation.json", b);

  /* What is refused. Outputs stay as they were. */
  fmp_handle none = 77;
  b = (fmp_buffer){0};
  refuses(fmp_classifier_open(NULL, &none, &error), "give a path");
  refuses(fmp_classifier_open("missing.onnx", &none, &error), "missing.onnx");
  refuses(fmp_classifier_load(NULL, 5, &none, &error), "allowed are 1 to");
  refuses(fmp_classifier_load("rubbish", 7, &none, &error), "classifier");
  refuses(fmp_classifier_load(graph.data, graph.size, &none, &error), "it is a client");
  refuses(fmp_classifier_load(graph.data, (size_t)-1, &none, &error), "allowed are 1 to");
  refuses(fmp_classifier_load(graph.data, graph.size, NULL, &error), "no place");
  refuses(fmp_client_load("rubbish", 7, NULL, &none, &error), "client graph");
  refuses(fmp_client_load(graph.data, graph.size, "no digest", &none, &error), "sha256");
  CHECK(none == 77);
  refuses(fmp_describe(77, &json, &error), "not open");
  refuses(fmp_describe(client, NULL, &error), "no place");
  refuses(fmp_predict(client, &images, &out, &error), "client graph's");
  refuses(fmp_predict(classifier, NULL, &out, &error), "0 images");
  refuses(fmp_predict(classifier, &images, NULL, &error), "no place");
  fmp_images odd = images;
  odd.n = FMP_MAX_IMAGES + 1;
  refuses(fmp_predict(classifier, &odd, &out, &error), "want 1 to 20000");
  out.classes = 9;
  refuses(fmp_predict(classifier, &images, &out, &error), "places for 9 classes");
  out.classes = 10;
  unsigned char set[10];
  out.set = set;
  refuses(fmp_predict(classifier, &images, &out, &error), "no such prediction sets");
  out.set = NULL;
  fmp_bytes bad[2] = {items[0], {"no image", 8}};
  odd = (fmp_images){bad, labels, 2};
  float first = want[0];
  want[0] = 5;
  refuses(fmp_predict(classifier, &odd, &out, &error), "000001.jpg");
  CHECK(want[0] == 5);
  want[0] = first;
  odd = (fmp_images){items, NULL, images.n};
  refuses(fmp_compress(client, &odd, &how, &b, &error), "want labels");
  refuses(fmp_evaluate(classifier, &odd, &counts, &b, &error), "want labels");
  int32_t wrong[2] = {0, 10};
  odd = (fmp_images){items, wrong, 2};
  refuses(fmp_compress(client, &odd, &how, &b, &error), "image 1 has label 10");
  refuses(fmp_compress(classifier, &images, &how, &b, &error), "want a client graph's");
  refuses(fmp_compress(client, &images, NULL, &b, &error), "say how");
  how.precision = "float64";
  refuses(fmp_compress(client, &images, &how, &b, &error), "float64");
  how.precision = NULL;
  how.at_least = -3;
  refuses(fmp_compress(client, &images, &how, &b, &error), "at_least is -3");
  counts.least = 1;
  refuses(fmp_evaluate(classifier, &images, &counts, &b, &error), "least is 1");
  counts.least = 0;
  counts.server = "zz";
  refuses(fmp_evaluate(classifier, &images, &counts, &b, &error), "server is \"zz\"");
  counts.server = NULL;
  how.name = NULL;
  refuses(fmp_compress(client, &images, &how, &b, &error), "name");
  counts.key.size = 3;
  refuses(fmp_evaluate(classifier, &images, &counts, &b, &error), "key");
  CHECK(b.data == NULL);
  fmp_close(classifier);
  fmp_close(classifier);
  refuses(fmp_predict(classifier, &images, &out, &error), "not open");
  fmp_close(client);
  fmp_free(NULL);
  return 0;
}
