#!/usr/bin/perl

# Copyright (c) 2026, the persistent-cache developers

# inlines.pl < PREPROCESSED
#
# Print the inline functions of preprocessed C, each on a line of its own and
# sorted.  An extension carries such a function with it as it was in the headers
# that it was compiled with.

use strict;
use warnings FATAL => 'all';

my $text = do { local $/; <STDIN> };
my ($depth, $chunk) = (0, '');
my %functions;

while ($text =~ /("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[{};]|[^"'{};]+)/gs)
{
	my $token = $1;

	$chunk .= $token;
	$depth++ if $token eq '{';
	$depth-- if $token eq '}';
	next if $depth > 0 || ($token ne ';' && $token ne '}');
	if ($token eq '}' && $chunk =~ /^[^{]*\binline\b[^{]*\)/s)
	{
		$chunk =~ s/\s+/ /g;
		$chunk =~ s/^ | $//g;

		# what __FILE__ and __LINE__ became
		$chunk =~ s/"[^"]*\.h", \d+/FILE, LINE/g;
		$functions{$chunk} = 1;
	}
	$chunk = '';
}
die "found no inline function\n" if !%functions;
print map { "$_\n" } sort keys %functions;
