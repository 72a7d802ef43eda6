/* SPDX-License-Identifier: Apache-2.0 */
/*
 * static.c - linked without a dynamic linker: what cannot be managed.
 */
int main(void)
{
    return 9;
}
