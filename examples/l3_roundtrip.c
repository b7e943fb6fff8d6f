// Encodes a picture of 640 x 480 pixels, decodes a window of it as planes of floats, and compares.
#include <l3/l3.h>
#include <stdio.h>
#include <stdlib.h>

enum { kHeight = 480, kWidth = 640, kTop = 100, kLeft = 200, kSide = 64 };
static unsigned char picture[kHeight][kWidth][3];
static float window[3][kSide][kSide];

static void require(l3_status status) {
  if (status == L3_OK) return;
  fprintf(stderr, "%s: %s\n", l3_status_name(status), l3_status_message(status));
  exit(1);
}

int main(void) {
  for (int i = 0; i < kHeight * kWidth * 3; ++i) {
    picture[i / (kWidth * 3)][i / 3 % kWidth][i % 3] = (unsigned char)(i / 1000 + i % 7);
  }
  const l3_image image = {picture, kHeight, kWidth, 3, L3_UINT8, 0};
  size_t bound, size;
  require(l3_encode_bound(&image, NULL, &bound));
  void* file = malloc(bound);
  require(l3_encode(&image, NULL, file, bound, &size));

  l3_decode_options options = {.struct_size = sizeof(options)};
  options.type = L3_FLOAT32;
  options.layout = L3_CHW;
  options.window = (l3_window){kTop, kLeft, kSide, kSide};
  require(l3_decode(file, size, &options, window, sizeof(window), NULL));
  free(file);
  for (int i = 0; i < 3 * kSide * kSide; ++i) {
    const int channel = i / (kSide * kSide), y = i / kSide % kSide, x = i % kSide;
    const int sample = (int)(window[channel][y][x] * 255 + 0.5f);
    if (sample != picture[kTop + y][kLeft + x][channel]) return 1;
  }
  printf("L3 %s: %d bytes of samples as %d\n", l3_version(), (int)sizeof(picture), (int)size);
  return 0;
}
