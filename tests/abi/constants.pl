#!/usr/bin/perl

# Copyright (c) 2026, the persistent-cache developers

# constants.pl < MACROS
#
# Given all macros of a translation unit (cpp -dM), print the part of a C
# program that has a constant for each that may be an integer, one on a line:
# whoever calls this removes the lines that do not compile.

use strict;
use warnings FATAL => 'all';

my %seen;
for (<STDIN>)
{
	next if !/^#define (\w+) (\S.*)$/ || $seen{$1}++;
	my ($name, $body) = ($1, $2);

	next if $body =~ /[{};#"\\]|\b(?:__attribute__|asm|goto|return|do|extern|static)\b/;
	print qq{enum { abi_$name = ($name) };\n};
}
