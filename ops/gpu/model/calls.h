// What hw_model.h calls, for the thread whose fiber runs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::gpu {

struct Barrier;
struct TensorMap;
enum class Major : uint8_t;

namespace model {

int threadIndex();
int blockIndex();
int blockCount();
std::byte* sharedMemory();

// Before a plain access of a type of that size, which is also its alignment.
void beforeLoad(const void* from, size_t bytes);
void beforeStore(void* to, size_t bytes);

uint64_t loadRelaxed(const uint64_t* counter);
void fenceAcquire();
void signal(uint64_t* counter, uint64_t amount);
uint32_t addShared(uint32_t* number, uint32_t amount);
void fenceProxyAsync();
void fenceProxyAsyncShared();
uint64_t globalTimer();
void sleepFor(uint32_t nanoseconds);

void syncWarp();
uint32_t ballot(bool value);
uint32_t shuffle(uint32_t value, int lane);
void syncBlock();
void syncNamed(int barrier, int threads);
void takeRegisters(int count);
void releaseRegisters(int count);

void initBarrier(Barrier* barrier, int count);
void fenceBarrierInit();
void arrive(Barrier* barrier, uint32_t bytes);
bool hasEnded(Barrier* barrier, int parity);

void copyPart(std::byte* to, const std::byte* from, bool isThere);
void holdForParts(Barrier* barrier);

void copyBox(std::byte* to, const TensorMap* from, Barrier* barrier, int column, int row, int outer,
             int rows);
void storeBox(const TensorMap* to, const std::byte* from, int column, int row, int outer, bool adds);
void fenceMap(const TensorMap* map);
void copyBytes(std::byte* to, const std::byte* from, uint32_t bytes, Barrier* barrier);
void storeBytes(std::byte* to, const std::byte* from, uint32_t bytes);
void groupStores();
void waitStores(int groups, bool onlyRead);

uint64_t describe(const std::byte* tile, Major major, uint32_t pitch);
void fenceProducts();
void multiply(int columns, Major majorA, Major majorB, float* sum, uint64_t a, uint64_t b, bool add);
void groupProducts();
void waitProducts(int groups);

[[noreturn]] void trap(const char* why);

}  // namespace model
}  // namespace sluice::gpu
