#include "ptx/memory.h"

#include <iterator>

namespace l3::ptx {

Block::Block(uint8_t* data, uint64_t bytes)
    : data_(data), bytes_(bytes), pages_((bytes + kPageBytes - 1) / kPageBytes) {}

ByteStamps Block::stamps(uint64_t offset) {
  std::unique_ptr<Page>& page = pages_[offset / kPageBytes];
  if (page == nullptr) page = std::make_unique<Page>();
  return {page->written + offset % kPageBytes, page->read + offset % kPageBytes};
}

void Memory::Add(uint8_t* data, uint64_t bytes) {
  blocks_[reinterpret_cast<uint64_t>(data)] = std::make_unique<Block>(data, bytes);
}

Block* Memory::Find(uint64_t address) {
  const auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return nullptr;
  Block* block = std::prev(next)->second.get();
  return block->Holds(address, 1) ? block : nullptr;
}

std::string Memory::Describe(uint64_t address) const {
  const auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return "in no memory of the device";
  const Block& block = *std::prev(next)->second;
  return "at byte " + std::to_string(address - block.base()) + " of the " +
         std::to_string(block.bytes()) + " of an allocation";
}

void Findings::Add(const std::string& where, const std::string& what, const std::string& example) {
  Finding& finding = found_[{where, what}];
  if (finding.count++ == 0) finding.example = example;
}

std::vector<std::string> Findings::Lines() const {
  std::vector<std::string> lines;
  for (const auto& [key, finding] : found_) {
    std::string line = std::get<0>(key) + ": " + std::get<1>(key);
    if (!finding.example.empty()) line += ", " + finding.example;
    if (finding.count > 1) line += " (" + std::to_string(finding.count) + " times)";
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace l3::ptx
