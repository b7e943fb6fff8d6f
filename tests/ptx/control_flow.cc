// Where lanes that parted meet again. Blocks of instructions get ranks in an order in which each
// comes after those that lead to it and every loop is of one piece; the machine runs the lanes at
// the lowest rank first, so that they catch up with the others.
#include <algorithm>
#include <map>
#include <set>

#include "ptx/program.h"

namespace l3::ptx {
namespace {

constexpr uint32_t kNone = ~0u;

class Flow {
 public:
  explicit Flow(Function* function) : code_(function->code) {
    FindBlocks();
    NumberBlocks();
    FindDominators();
    FindLoops();
    ranks_.assign(begins_.size(), next_rank_);
    Rank(order_, 0, kNone);
    for (uint32_t i = 0; i < code_.size(); ++i) code_[i].rank = ranks_[block_of_[i]];
  }

 private:
  void FindBlocks() {
    code_[0].begins_block = true;
    for (size_t i = 0; i < code_.size(); ++i) {
      const Kind kind = code_[i].kind;
      if (kind == Kind::kBranch) code_[static_cast<size_t>(code_[i].offset)].begins_block = true;
      const bool ends = kind == Kind::kBranch || kind == Kind::kReturn || kind == Kind::kCall ||
                        kind == Kind::kTrap;
      if (ends && i + 1 < code_.size()) code_[i + 1].begins_block = true;
    }
    for (uint32_t i = 0; i < code_.size(); ++i) {
      if (code_[i].begins_block) begins_.push_back(i);
      block_of_.push_back(static_cast<uint32_t>(begins_.size() - 1));
    }
    next_.resize(begins_.size());
    before_.resize(begins_.size());
    for (uint32_t block = 0; block < begins_.size(); ++block) {
      const bool is_last = block + 1 == begins_.size();
      const Instruction& last = code_[(is_last ? code_.size() : begins_[block + 1]) - 1];
      if (last.kind == Kind::kBranch) {
        next_[block].push_back(block_of_[static_cast<size_t>(last.offset)]);
      }
      const bool leaves =
          last.guard == kNoSlot &&
          (last.kind == Kind::kBranch || last.kind == Kind::kReturn || last.kind == Kind::kTrap);
      if (!leaves && !is_last) next_[block].push_back(block + 1);
      for (uint32_t other : next_[block]) before_[other].push_back(block);
    }
  }

  // In reverse postorder. Blocks that nothing leads to have no number.
  void NumberBlocks() {
    numbers_.assign(begins_.size(), kNone);
    std::vector<bool> seen(begins_.size());
    std::vector<std::pair<uint32_t, size_t>> stack = {{0, 0}};
    seen[0] = true;
    while (!stack.empty()) {
      auto& [block, i] = stack.back();
      if (i == next_[block].size()) {
        order_.push_back(block);
        stack.pop_back();
        continue;
      }
      const uint32_t other = next_[block][i++];
      if (!seen[other]) stack.push_back({other, 0});
      seen[other] = true;
    }
    std::reverse(order_.begin(), order_.end());
    for (uint32_t i = 0; i < order_.size(); ++i) numbers_[order_[i]] = i;
  }

  // As Cooper, Harvey and Kennedy find them.
  void FindDominators() {
    dominators_.assign(begins_.size(), kNone);
    dominators_[0] = 0;
    for (bool changed = true; changed;) {
      changed = false;
      for (uint32_t block : order_) {
        if (block == 0) continue;
        uint32_t found = kNone;
        for (uint32_t other : before_[block]) {
          if (numbers_[other] == kNone || dominators_[other] == kNone) continue;
          found = found == kNone ? other : Common(found, other);
        }
        changed = changed || found != dominators_[block];
        dominators_[block] = found;
      }
    }
  }
  uint32_t Common(uint32_t a, uint32_t b) const {
    while (a != b) {
      while (numbers_[a] > numbers_[b]) a = dominators_[a];
      while (numbers_[b] > numbers_[a]) b = dominators_[b];
    }
    return a;
  }

  // Natural loops, known by their first block.
  void FindLoops() {
    std::map<uint32_t, std::set<uint32_t>> loops;
    for (uint32_t block : order_) {
      for (uint32_t first : next_[block]) {
        if (Common(first, block) != first) continue;
        std::set<uint32_t>& body = loops[first];
        body.insert(first);
        std::vector<uint32_t> work = {block};
        while (!work.empty()) {
          const uint32_t one = work.back();
          work.pop_back();
          if (!body.insert(one).second) continue;
          for (uint32_t other : before_[one]) {
            if (numbers_[other] != kNone) work.push_back(other);
          }
        }
      }
    }
    std::vector<std::pair<size_t, uint32_t>> by_size;
    for (const auto& [first, body] : loops) by_size.push_back({body.size(), first});
    std::sort(by_size.rbegin(), by_size.rend());
    loops_of_.resize(begins_.size());
    for (const auto& [size, first] : by_size) {
      for (uint32_t block : loops[first]) loops_of_[block].push_back(first);
    }
  }

  // Ranks blocks, all within a loop that begins with `first`, of which each at this depth of loops
  // counts as one.
  void Rank(const std::vector<uint32_t>& blocks, size_t depth, uint32_t first) {
    std::map<uint32_t, std::vector<uint32_t>> members;
    std::map<uint32_t, uint32_t> group_of;
    for (uint32_t block : blocks) {
      const uint32_t group = loops_of_[block].size() > depth ? loops_of_[block][depth] : block;
      group_of[block] = group;
      members[group].push_back(block);
    }
    const auto later_first = [this](uint32_t a, uint32_t b) { return numbers_[a] > numbers_[b]; };
    std::map<uint32_t, std::vector<uint32_t>> next;
    std::vector<uint32_t> groups;
    for (uint32_t block : blocks) {
      const uint32_t group = group_of[block];
      groups.push_back(group);
      for (uint32_t other : next_[block]) {
        const auto found = group_of.find(other);
        if (found == group_of.end() || found->second == group || other == first) continue;
        next[group].push_back(found->second);
      }
    }
    for (auto& list : next) std::sort(list.second.begin(), list.second.end(), later_first);
    std::sort(groups.begin(), groups.end(), later_first);

    // Postorder, later ones first, so that the order turned around has earlier ones first.
    std::vector<uint32_t> post;
    std::set<uint32_t> seen;
    std::vector<std::pair<uint32_t, size_t>> stack;
    for (uint32_t root : groups) {
      if (!seen.insert(root).second) continue;
      stack.push_back({root, 0});
      while (!stack.empty()) {
        auto& [group, i] = stack.back();
        const std::vector<uint32_t>& list = next[group];
        if (i == list.size()) {
          post.push_back(group);
          stack.pop_back();
          continue;
        }
        const uint32_t other = list[i++];
        if (seen.insert(other).second) stack.push_back({other, 0});
      }
    }
    for (size_t i = post.size(); i-- > 0;) {
      const std::vector<uint32_t>& group = members[post[i]];
      if (group.size() == 1) {
        ranks_[group[0]] = next_rank_++;
      } else {
        Rank(group, depth + 1, post[i]);
      }
    }
  }

  std::vector<Instruction>& code_;
  std::vector<uint32_t> begins_, block_of_, order_, numbers_, dominators_, ranks_;
  std::vector<std::vector<uint32_t>> next_, before_, loops_of_;
  uint32_t next_rank_ = 0;
};

}  // namespace

void RankInstructions(Function* function) { Flow flow(function); }

}  // namespace l3::ptx
