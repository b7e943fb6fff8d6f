// Joins a kernel with the functions that it calls. Nothing recurses, so each function has slots
// and a frame of its own, once.
#include <algorithm>
#include <map>

#include "ptx/program.h"

namespace l3::ptx {
namespace {

constexpr uint32_t kFrameUnit = 16;
constexpr uint32_t kMaxFrameBytes = 1 << 20;

class Linker {
 public:
  explicit Linker(const Module& module) : module_(module), kernel_(std::make_unique<Kernel>()) {
    kernel_->file = module.file;
    kernel_->source_files = module.source_files;
  }

  std::unique_ptr<Kernel> Link(const Function& entry) {
    Function& body = kernel_->body;
    body.name = entry.name;
    body.is_entry = true;
    body.line = entry.line;
    body.entry_bytes = entry.entry_bytes;
    body.parameters = entry.parameters;
    body.max_threads = entry.max_threads;
    body.min_blocks = entry.min_blocks;
    Append(entry);
    // Calls are known by now; each names the place where its function begins.
    for (const Call& call : body.calls) kernel_->entry_of.push_back(begins_.at(call.function));
    return std::move(kernel_);
  }

 private:
  void Append(const Function& function) {
    Function& body = kernel_->body;
    const auto code_base = static_cast<uint32_t>(body.code.size());
    const auto call_base = static_cast<uint32_t>(body.calls.size());
    const uint32_t slot_base = code_base == 0 ? 0 : body.slots;
    const uint32_t frame_base = (body.frame_bytes + kFrameUnit - 1) / kFrameUnit * kFrameUnit;
    body.slots = slot_base + function.slots;
    body.frame_bytes = frame_base + function.frame_bytes;
    if (body.frame_bytes > kMaxFrameBytes) {
      throw Fault(module_.file + ":" + std::to_string(function.line) + ": .func " + function.name +
                  ": too much local memory");
    }
    for (Instruction in : function.code) {
      // The first two slots are zero, and one pair is enough.
      for (uint32_t& slot : in.d) slot += slot < 2 ? 0 : slot_base;
      for (uint32_t& slot : in.s) slot += slot < 2 ? 0 : slot_base;
      if (in.guard != kNoSlot) in.guard += slot_base;
      if (in.address != kNoSlot) {
        in.address += slot_base;
      } else if (in.space == Space::kLocal) {
        in.offset += frame_base;
      }
      if (in.kind == Kind::kBranch) in.offset += code_base;
      if (in.kind == Kind::kCall) in.call += call_base;
      body.code.push_back(in);
    }
    for (auto [slot, value] : function.constants) {
      body.constants.push_back({slot + slot_base, value});
    }
    for (auto [slot, value] : function.wide_constants) {
      body.wide_constants.push_back({slot + slot_base, value});
    }
    for (auto [slot, value] : function.predicate_constants) {
      body.predicate_constants.push_back({slot + slot_base, value});
    }
    for (auto [slot, place] : function.frame_addresses) {
      body.wide_constants.push_back({slot + slot_base, place + frame_base});
    }
    for (Call call : function.calls) {
      for (FrameCopy& copy : call.arguments) copy.from += frame_base;
      for (FrameCopy& copy : call.results) copy.to += frame_base;
      body.calls.push_back(std::move(call));
    }
    for (size_t i = 0; i < function.calls.size(); ++i) {
      const uint32_t callee = function.calls[i].function;
      if (begins_.count(callee) == 0) {
        begins_[callee] = static_cast<uint32_t>(body.code.size());
        frames_[callee] = (body.frame_bytes + kFrameUnit - 1) / kFrameUnit * kFrameUnit;
        Append(*module_.functions[callee]);
      }
      Call& call = body.calls[call_base + i];
      for (FrameCopy& copy : call.arguments) copy.to += frames_[callee];
      for (FrameCopy& copy : call.results) copy.from += frames_[callee];
    }
  }

  const Module& module_;
  std::unique_ptr<Kernel> kernel_;
  std::map<uint32_t, uint32_t> begins_, frames_;  // by function
};

}  // namespace

std::unique_ptr<Kernel> LinkKernel(const Module& module, const std::string& name) {
  for (const auto& function : module.functions) {
    if (function->is_entry && function->name == name) return Linker(module).Link(*function);
  }
  return nullptr;
}

}  // namespace l3::ptx
