// Loads, stores and atomic operations: where they go, whether they may, and what orders them.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "ptx/lanes.h"
#include "ptx/warp.h"

namespace l3::ptx {
namespace {

std::string Hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

// Where a lane goes, of generic addresses too.
struct Place {
  Space space;
  uint64_t address;
};

Place PlaceOf(const Warp& warp, const Instruction& in, uint32_t lane) {
  auto address = static_cast<uint64_t>(in.offset);
  if (in.address != kNoSlot) address += warp.Value(in.address, in.wide_address, lane);
  Space space = in.space;
  if (space == Space::kGeneric) {
    space = (address & kSharedWindow) != 0  ? Space::kShared
            : (address & kLocalWindow) != 0 ? Space::kLocal
                                            : Space::kGlobal;
    address &= ~(kSharedWindow | kLocalWindow);
  }
  if (space == Space::kShared) address = static_cast<uint32_t>(address);
  return {space, address};
}

}  // namespace

// Memory of one access of one lane.
class Machine::Access {
 public:
  Access(Machine* machine, Warp* warp, const Instruction& in, uint32_t lane, uint32_t bytes) {
    const Place place = PlaceOf(*warp, in, lane);
    space = place.space;
    const uint64_t address = place.address;
    if (address % bytes != 0) {
      machine->Stop(in, "an address that is not a multiple of " + std::to_string(bytes) + ", " +
                            Hex(address) + ", " + machine->Who(*warp, lane));
    }
    if (space == Space::kShared) {
      BlockState& block = *machine->block_;
      const uint64_t offset = address - kSharedBase;
      CheckBounds(machine, *warp, in, lane, "shared", offset, bytes, block.shared.size());
      data = &block.shared[offset];
      if (machine->options_.checks) {
        stamps = {&block.shared_written[offset], &block.shared_read[offset]};
      }
    } else if (space == Space::kLocal) {
      const uint32_t size = machine->code_->frame_bytes;
      CheckBounds(machine, *warp, in, lane, "local", address, bytes, size);
      data = &warp->frame[size_t{lane} * size + address];
    } else {
      const auto number = static_cast<size_t>(&in - machine->code_->code.data());
      Block*& block = machine->last_blocks_[number];
      if (block == nullptr || !block->Holds(address, bytes)) {
        block = machine->memory_->Find(address);
      }
      if (block == nullptr || !block->Holds(address, bytes)) {
        machine->Stop(in, "global memory out of bounds, " + std::to_string(bytes) + " bytes " +
                              machine->memory_->Describe(address) + ", " +
                              machine->Who(*warp, lane));
      }
      const uint64_t offset = address - block->base();
      data = block->data(offset);
      if (machine->options_.checks) stamps = block->stamps(offset);
    }
  }

  Space space = Space::kGlobal;
  uint8_t* data = nullptr;
  ByteStamps stamps;

 private:
  static void CheckBounds(const Machine* machine, const Warp& warp, const Instruction& in,
                          uint32_t lane, const char* name, uint64_t offset, uint32_t bytes,
                          uint64_t size) {
    if (offset < size && size - offset >= bytes) return;
    machine->Stop(in, std::string(name) + " memory out of bounds, " + std::to_string(bytes) +
                          " bytes at " + std::to_string(static_cast<int64_t>(offset)) + " of " +
                          std::to_string(size) + ", " + machine->Who(warp, lane));
  }
};

void Machine::RunMemory(Warp* warp, const Instruction& in, uint32_t mask) {
  const uint32_t element = in.operation->bytes, bytes = element * in.vector;
  const bool is_store = in.kind == Kind::kStore;
  ForLanes(mask, [&](uint32_t lane) {
    uint8_t buffer[16];
    if (in.space == Space::kEntryParam) {
      uint64_t offset = static_cast<uint64_t>(in.offset);
      if (in.address != kNoSlot) offset += warp->Value(in.address, in.wide_address, lane);
      if (offset >= code_->entry_bytes || code_->entry_bytes - offset < bytes) {
        Stop(in, "parameters out of bounds");
      }
      std::memcpy(buffer, launch_.parameters + offset, bytes);
    } else if (!is_store) {
      const Access access(this, warp, in, lane, bytes);
      if (access.stamps.written != nullptr) {
        Touch(warp, in, lane, access.stamps, bytes, false, false, access.space == Space::kShared);
      }
      std::memcpy(buffer, access.data, bytes);
    }
    if (!is_store) {
      for (uint32_t i = 0; i < in.vector; ++i) {
        uint64_t value = 0;
        std::memcpy(&value, buffer + i * element, element);
        if (in.operation->is_signed) {
          const uint32_t up = 64 - 8 * element;
          value = static_cast<uint64_t>(static_cast<int64_t>(value << up) >> up);
        }
        warp->SetValue(in.d[i], (in.wide >> i & 1) != 0, lane, value);
      }
      return;
    }
    for (uint32_t i = 0; i < in.vector; ++i) {
      const uint64_t value = warp->Value(in.d[i], (in.wide >> i & 1) != 0, lane);
      std::memcpy(buffer + i * element, &value, element);
    }
    const Access access(this, warp, in, lane, bytes);
    if (access.stamps.written != nullptr) {
      // The same value from several lanes at once is one value.
      const bool is_same = std::memcmp(access.data, buffer, bytes) == 0;
      Touch(warp, in, lane, access.stamps, bytes, true, is_same, access.space == Space::kShared);
    }
    std::memcpy(access.data, buffer, bytes);
  });
}

void Machine::RunAtomic(Warp* warp, const Instruction& in, uint32_t mask) {
  const uint32_t bytes = in.operation->bytes;
  ForLanes(mask, [&](uint32_t lane) {
    const Access access(this, warp, in, lane, bytes);
    if (access.stamps.written != nullptr) {
      Touch(warp, in, lane, access.stamps, bytes, true, false, access.space == Space::kShared);
    }
    uint64_t old = 0;
    std::memcpy(&old, access.data, bytes);
    const uint64_t value = std::min(old, uint64_t{warp->Value(in.s[0], true, lane)});
    std::memcpy(access.data, &value, bytes);
    warp->SetValue(in.d[0], true, lane, old);
  });
}

// Whether an access of another lane is done and visible when this lane goes on.
bool Machine::IsOrdered(const Warp& warp, uint32_t lane, Stamp before) {
  if (before.is_none()) return true;
  if (before.launch() != launch_.number) return true;  // its stream has waited
  const uint32_t per_block = static_cast<uint32_t>(warps_.size()) * kLanes;
  const uint32_t thread = before.thread() - block_->first_thread;
  if (thread >= per_block || before.reach() == Stamp::kGrid) return false;
  if (before.reach() == Stamp::kBlock) return before.epoch() < block_->barriers;
  const Warp& other = *warps_[thread / kLanes];
  if (other.index != warp.index) return before.epoch() < other.barrier_epoch;
  if (before.epoch() < warp.epoch) return true;
  return before.reach() == Stamp::kThread && thread % kLanes == lane;
}

// The readers of a byte, with one more.
Stamp Machine::Merged(const Warp& warp, Stamp before, Stamp mine) const {
  const bool mark = before.mark() || mine.mark();
  const auto stamp = [&](Stamp::Reach reach, uint32_t epoch) {
    return Stamp(mine.launch(), mark, reach, mine.thread(), epoch);
  };
  const uint32_t per_block = static_cast<uint32_t>(warps_.size()) * kLanes;
  const uint32_t thread = before.thread() - block_->first_thread;
  if (thread >= per_block || before.reach() == Stamp::kGrid) return stamp(Stamp::kGrid, 0);
  if (before.reach() == Stamp::kBlock) return stamp(Stamp::kBlock, block_->barriers);
  if (thread / kLanes != warp.index) {
    const bool is_done = before.epoch() < warps_[thread / kLanes]->barrier_epoch;
    return is_done ? stamp(Stamp::kThread, mine.epoch()) : stamp(Stamp::kBlock, block_->barriers);
  }
  if (before.epoch() < warp.epoch ||
      (before.reach() == Stamp::kThread && before.thread() == mine.thread())) {
    return stamp(Stamp::kThread, mine.epoch());
  }
  return stamp(Stamp::kWarp, std::max(before.epoch(), mine.epoch()));
}

void Machine::Touch(Warp* warp, const Instruction& in, uint32_t lane, ByteStamps stamps,
                    uint32_t bytes, bool writes, bool is_same, bool is_shared) {
  const uint32_t thread = block_->first_thread + warp->index * kLanes + lane;
  const bool is_atomic = in.kind == Kind::kAtomic, is_nc = in.space == Space::kGlobalNc;
  const uint32_t launch = launch_.number;
  const Stamp mine(launch, writes ? is_atomic : is_nc, Stamp::kThread, thread, warp->epoch);
  const auto race = [&](Stamp other, const char* what) {
    std::string who = Who(*warp, lane);
    const uint32_t per_block = static_cast<uint32_t>(warps_.size()) * kLanes;
    who += ", and block " + std::to_string(other.thread() / per_block) + " warp " +
           std::to_string(other.thread() % per_block / kLanes) + " lane " +
           std::to_string(other.thread() % kLanes);
    Report(in,
           std::string(what) + (is_shared ? " in shared memory" : " in global memory") +
               " by a lane that nothing orders before this",
           who);
  };
  // Neighbours mostly have the same stamps: what was found of one holds for the next.
  Stamp known, read_before = mine, read_after = mine;
  for (uint32_t i = 0; i < bytes; ++i) {
    Stamp& written = stamps.written[i];
    Stamp& read = stamps.read[i];
    if (!(written == known) && !(is_atomic && written.mark() && written.launch() == launch)) {
      const bool is_one = writes && is_same && written.launch() == launch &&
                          written.epoch() == mine.epoch() &&
                          written.thread() / kLanes == thread / kLanes;
      if (is_one || IsOrdered(*warp, lane, written)) {
        known = written;
      } else {
        race(written, writes ? "a write of bytes written" : "a read of bytes written");
      }
    }
    if (is_nc && written.launch() == launch) {
      Report(in, "ld.global.nc of what the launch writes", Who(*warp, lane));
    }
    if (!writes) {
      if (read == read_before) {
        read = read_after;
        continue;
      }
      read_before = read;
      if (read.launch() != launch) {
        read = mine;
      } else if (!(read == mine) && (read.reach() != Stamp::kGrid || read.mark() != is_nc)) {
        read = Merged(*warp, read, mine);
      }
      read_after = read;
      continue;
    }
    if (!read.is_none()) {
      if (read.launch() == launch && read.mark()) {
        Report(in, "a write of what the launch reads by ld.global.nc", Who(*warp, lane));
      }
      if (!(read == known) && !is_same && !IsOrdered(*warp, lane, read)) {
        race(read, "a write of bytes read");
      }
      read = Stamp();
    }
    written = mine;
  }
}

}  // namespace l3::ptx
