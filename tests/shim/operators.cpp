// SPDX-License-Identifier: Apache-2.0
// operators.cpp - new and delete in all their forms, containers, exceptions and threads.
extern "C" {
#include "tests/shim/check.h"
}

#include <algorithm>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace
{

struct alignas(256) Wide {
    char bytes[512];
};

struct Named {
    std::string name;
    explicit Named(int number) : name(std::to_string(number) + std::string(50, 'x'))
    {
    }
};

thread_local std::vector<std::string> per_thread;

void plain()
{
    int *one = new int(7);
    int *many = new int[100000];
    Wide *wide = new Wide;
    Wide *wides = new Wide[10];

    CHECK_MANAGED(one);
    CHECK_MANAGED(many);
    CHECK_MANAGED(wide);
    CHECK(reinterpret_cast<uintptr_t>(wide) % 256 == 0 && reinterpret_cast<uintptr_t>(wides) % 256 == 0);
    delete one;
    delete[] many;
    delete wide;
    delete[] wides;
    ::operator delete(::operator new(100));
    ::operator delete(::operator new(0));
}

void failing()
{
    bool thrown = false;

    CHECK(::operator new(static_cast<std::size_t>(PTRDIFF_MAX), std::nothrow) == nullptr);
    try {
        ::operator delete(::operator new(static_cast<std::size_t>(PTRDIFF_MAX)));
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    CHECK(thrown);
}

void containers(int seed)
{
    std::map<int, std::unique_ptr<Named>> names;
    std::vector<int> numbers;

    for (int i = 0; i < 20000; i++) {
        names[i * 7 % 20011] = std::make_unique<Named>(seed + i);
        numbers.push_back(i);
        if (i % 100 == 0)
            per_thread.push_back(std::string(static_cast<std::size_t>(i), 'y'));
    }
    for (int i = 0; i < 20000; i++)
        CHECK(names[i * 7 % 20011]->name.compare(0, std::to_string(seed + i).size(), std::to_string(seed + i)) == 0);
    CHECK(std::is_sorted(numbers.begin(), numbers.end()));
}

} // namespace

int main()
{
    std::vector<std::thread> threads;

    plain();
    failing();
    for (int i = 0; i < 6; i++)
        threads.emplace_back(containers, i * 1000);
    containers(99);
    for (std::thread &thread : threads)
        thread.join();
    return 0;
}
