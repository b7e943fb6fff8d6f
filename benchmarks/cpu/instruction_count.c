// A plugin of qemu's user mode (API version 1) that counts the instructions executed and prints
// them to stderr at the end. The header of that API is not packaged, so what is used is declared.
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

struct qemu_plugin_tb;
typedef void (*TranslateCallback)(uint64_t id, struct qemu_plugin_tb* block);
typedef void (*ExitCallback)(uint64_t id, void* data);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, TranslateCallback callback);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb* block, int op, void* counter,
                                              uint64_t added);
void qemu_plugin_register_atexit_cb(uint64_t id, ExitCallback callback, void* data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb* block);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

static uint64_t count;

static void CountBlock(uint64_t id, struct qemu_plugin_tb* block) {
  (void)id;
  qemu_plugin_register_vcpu_tb_exec_inline(block, 0, &count, qemu_plugin_tb_n_insns(block));
}

static void PrintCount(uint64_t id, void* data) {
  (void)id;
  (void)data;
  fprintf(stderr, "%" PRIu64 "\n", count);
}

__attribute__((visibility("default"))) int qemu_plugin_install(uint64_t id, const void* info,
                                                               int argc, char** argv) {
  (void)info;
  (void)argc;
  (void)argv;
  qemu_plugin_register_vcpu_tb_trans_cb(id, CountBlock);
  qemu_plugin_register_atexit_cb(id, PrintCount, NULL);
  return 0;
}
