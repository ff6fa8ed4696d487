#!/usr/bin/perl

# Copyright (c) 2026, the persistent-cache developers

# layout.pl OBJECT
#
# Print what the types in an object's debug information look like: a line for
# each value of an enum, for each size of a struct or union, and for each of
# their members its place and its size.  Lines are sorted, so that two objects
# can be compared with comm(1).
#
# Types without a name of their own are described through the member or the
# typedef that has them.

use strict;
use warnings FATAL => 'all';

die "usage: $0 OBJECT\n" if @ARGV != 1;
open my $dump, '-|', 'readelf', '--wide', '--debug-dump=info', $ARGV[0]
  or die "could not run readelf: $!\n";

# by offset: { tag, name, value, size, at, type, children }
my %die;
my @stack;
my $current;

while (my $line = <$dump>)
{
	if ($line =~ /^ <([0-9a-f]+)><([0-9a-f]+)>: Abbrev Number: (\d+)(?: \((DW_TAG_\w+)\))?/)
	{
		my ($depth, $offset, $tag) = (hex $1, $2, $4);

		$current = undef;
		next if $3 == 0;
		$current = { tag => $tag, children => [] };
		$die{$offset} = $current;
		splice @stack, $depth;
		push @{ $stack[-1]->{children} }, $current if @stack;
		$current->{depth} = $depth;
		push @stack, $current;
	}
	elsif (defined $current && $line =~ /^\s+<[0-9a-f]+>\s+(DW_AT_\w+)\s*: (.*?)\s*$/)
	{
		my ($attribute, $value) = ($1, $2);

		# newer ones say how the value is stored
		$value =~ s/^\((?:addr|data\d*|flag\w*|implicit_const|ref\w*|[su]data|str\w*|line_strp|exprloc|sec_offset|block\d)\) //;
		if ($attribute eq 'DW_AT_name')
		{
			$value =~ s/^\((?:indirect|offset)[^)]*\): //;
			$current->{name} = $value;
		}
		elsif ($attribute eq 'DW_AT_type')
		{
			$current->{type} = $1 if $value =~ /^<0x([0-9a-f]+)>/;
		}
		elsif ($attribute =~ /^DW_AT_(?:const_value|byte_size|bit_size|data_member_location|data_bit_offset|upper_bound|declaration)$/)
		{
			$value =~ s/^(-?(?:0x[0-9a-f]+|\d+)).*/$1/;
			$value = hex $value if $value =~ /^0x/;
			$current->{$attribute} = $value;
		}
	}
}
close $dump or die "readelf failed on $ARGV[0]\n";
die "there is no debug information in $ARGV[0]\n" if !%die;

my %typedef_of;    # offset of a type without a name => its typedef
for my $entry (values %die)
{
	$typedef_of{ $entry->{type} } //= $entry->{name}
	  if $entry->{tag} eq 'DW_TAG_typedef' && defined $entry->{type};
}

my %lines;
for my $offset (keys %die)
{
	my $entry = $die{$offset};
	my $kind;

	next if $entry->{depth} != 1 || $entry->{DW_AT_declaration};
	if ($entry->{tag} eq 'DW_TAG_enumeration_type')
	{
		for my $child (@{ $entry->{children} })
		{
			$lines{"enum $child->{name} = $child->{DW_AT_const_value}"} = 1
			  if $child->{tag} eq 'DW_TAG_enumerator';
		}
		$lines{"size of enum $entry->{name} = $entry->{DW_AT_byte_size}"} = 1
		  if defined $entry->{name};
	}
	elsif ($entry->{tag} =~ /^DW_TAG_(structure|union)_type$/)
	{
		$kind = $1 eq 'union' ? 'union' : 'struct';
		my $name =
			defined $entry->{name} ? "$kind $entry->{name}"
		  : defined $typedef_of{$offset} ? $typedef_of{$offset}
		  : undef;

		next if !defined $name;    # see its members
		$lines{"size of $name = $entry->{DW_AT_byte_size}"} = 1;
		members($name, $entry, 0, '');
	}
}
print map { "$_\n" } sort keys %lines;

# A line for each member of a struct or union; those without a type name are
# entered.
sub members
{
	my ($name, $entry, $base, $prefix) = @_;

	for my $member (@{ $entry->{children} })
	{
		next if $member->{tag} ne 'DW_TAG_member';
		my $at = $base + ($member->{DW_AT_data_member_location} // 0);
		my $type = $die{ $member->{type} };
		my $path = $prefix . ($member->{name} // '');

		if ($type->{tag} =~ /^DW_TAG_(?:structure|union)_type$/ && !defined $type->{name}
			&& !defined $typedef_of{ $member->{type} })
		{
			members($name, $type, $at, $path eq $prefix ? $prefix : "$path.");
		}
		next if !defined $member->{name};
		if (defined $member->{DW_AT_bit_size})
		{
			$lines{"$name: $path at bit " . ($base * 8 + ($member->{DW_AT_data_bit_offset} // 0))
			  . ", $member->{DW_AT_bit_size} bits"} = 1;
		}
		else
		{
			$lines{"$name: $path at $at, " . describe($member->{type})} = 1;
		}
	}
	return;
}

# What a type is: its name, and its size if it has one.
sub describe
{
	my ($offset) = @_;

	return 'void' if !defined $offset;
	my $type = $die{$offset};
	my $name = $type->{name} // '';

	return 'pointer' if $type->{tag} eq 'DW_TAG_pointer_type';
	return describe($type->{type})
	  if $type->{tag} =~ /^DW_TAG_(?:typedef|const_type|volatile_type|restrict_type|atomic_type)$/;
	if ($type->{tag} eq 'DW_TAG_array_type')
	{
		my @dimensions = map { defined $_->{DW_AT_upper_bound} ? $_->{DW_AT_upper_bound} + 1 : '' }
		  grep { $_->{tag} eq 'DW_TAG_subrange_type' } @{ $type->{children} };
		return describe($type->{type}) . join '', map { "[$_]" } @dimensions;
	}
	my $kind = $type->{tag} =~ /^DW_TAG_(\w+?)_type$/ ? $1 : $type->{tag};
	$kind = '' if $kind eq 'base';
	return join(' ', grep { $_ ne '' } $kind, $name) . ' of ' . ($type->{DW_AT_byte_size} // 0) . ' bytes';
}
