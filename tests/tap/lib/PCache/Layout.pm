
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

PCache::Layout - where does a field lie in a pool, and how is it stored?

=head1 DESCRIPTION

The structs are read from src/include/storage/pcache_layout.h below
$ENV{PCACHE_ROOT}, so a test knows a field by the name that it has there.

=cut

package PCache::Layout;

use strict;
use warnings FATAL => 'all';

use Carp;
use Exporter 'import';
use List::Util qw(max);
use PostgreSQL::Test::Utils;

our @EXPORT = qw(
  BLCKSZ
  SUPERBLOCK_SIZE
  COPY_OFFSET
  SIGHTING_OFFSET
  SIGHTING_SIZE
  DESCRIPTORS_OFFSET
  DESCRIPTOR_SIZE
  STATE_EMPTY
  STATE_DIRTY
  STATE_CLEAN
  struct_fields
  crc32c
);
our @EXPORT_OK = qw(unpack_fields set_field);

use constant {
	BLCKSZ => 8192,
	SUPERBLOCK_SIZE => 4096,
	COPY_OFFSET => 4096,
	SIGHTING_OFFSET => 8192 + 256,
	SIGHTING_SIZE => 128,
	DESCRIPTORS_OFFSET => 2 * 1024 * 1024,
	DESCRIPTOR_SIZE => 64,
	STATE_EMPTY => 1,
	STATE_DIRTY => 3,
	STATE_CLEAN => 4,
};

# Size and template for pack(), by type.
my %TYPES = (
	char => [ 1, 'a' ],
	uint8 => [ 1, 'C' ],
	uint16 => [ 2, 'S' ],
	uint32 => [ 4, 'L' ],
	int32 => [ 4, 'l' ],
	uint64 => [ 8, 'Q' ],
	int64 => [ 8, 'q' ],);

=pod

=item struct_fields(struct)

The fields of a struct in pcache_layout.h, in order: name, offset, size and
the template for unpack().  Structs in it are taken apart ("saved.location",
"dimms[0].id"); of an array of structs the first and last element are listed.

=cut

sub struct_fields
{
	my ($struct) = @_;
	my ($fields, $size) = layout($struct);
	return @$fields;
}

# The same as a reference to a list, then size and alignment of the struct.  The
# compiler's rules for x86-64 and the other 64-bit platforms apply.
sub layout
{
	my ($struct) = @_;
	my $header = header_text();
	my ($body) = $header =~ /typedef struct $struct\s*\{(.*?)\}\s*$struct;/s
	  or croak "no struct $struct in pcache_layout.h";
	my @fields;
	my $offset = 0;
	my $max_align = 1;

	$body =~ s{/\*.*?\*/}{}gs;
	$body =~ s/union\s*\{\s*(.*?;).*?\}\s*;/$1/gs;
	for my $declaration (split /;/, $body)
	{
		$declaration =~ /^\s*(\w+)\s+(\w+)(?:\[(\w+)\])?\s*$/s or next;
		my ($type, $name, $dimension) = ($1, $2, $3);
		my $count = defined $dimension ? number($dimension) : 1;
		my ($element_fields, $size, $template);
		my $align;

		if (exists $TYPES{$type})
		{
			($size, $template) = @{ $TYPES{$type} };
			$align = $size;
		}
		else
		{
			($element_fields, $size, $align) = layout($type);
		}
		$offset = ($offset + $align - 1) & ~($align - 1);
		$max_align = max($max_align, $align);
		if (!defined $element_fields)
		{
			push @fields,
			  {
				name => $name,
				offset => $offset,
				size => $size * $count,
				template => $count > 1 ? 'a' . $size * $count : $template
			  };
		}
		else
		{
			my @indexes = $count > 1 ? (0, $count - 1) : (0);

			for my $i (@indexes)
			{
				push @fields,
				  map { {
					%$_,
					name => ($count > 1 ? "${name}[$i]" : $name) . ".$_->{name}",
					offset => $offset + $i * $size + $_->{offset}
				} } @$element_fields;
			}
		}
		$offset += $size * $count;
	}
	$offset = ($offset + $max_align - 1) & ~($max_align - 1);
	return (\@fields, $offset, $max_align);
}

my $header_text;

# The header, which is read once.
sub header_text
{
	$header_text //= slurp_file(
		"$ENV{PCACHE_ROOT}/src/include/storage/pcache_layout.h");
	return $header_text;
}

# A dimension: digits, or a macro of the header that stands for digits.
sub number
{
	my ($text) = @_;

	return $text if $text =~ /^\d+$/;
	return $1 if header_text() =~ /^#define\s+$text\s+(\d+)\b/m;
	croak "no number $text in pcache_layout.h";
}

my @crc_table = map {
	my $c = $_;
	$c = $c & 1 ? ($c >> 1) ^ 0x82F63B78 : $c >> 1 for 1 .. 8;
	$c
} 0 .. 255;

# CRC-32C (Castagnoli) of a string of bytes.
sub crc32c
{
	my ($bytes) = @_;
	my $crc = 0xFFFFFFFF;

	$crc = $crc_table[ ($crc ^ $_) & 0xFF ] ^ ($crc >> 8) for unpack 'C*', $bytes;
	return $crc ^ 0xFFFFFFFF;
}

# The fields of a struct in raw bytes: a reference to a hash, by name.
sub unpack_fields
{
	my ($struct, $bytes) = @_;
	my %values;

	$values{ $_->{name} } =
	  unpack $_->{template}, substr $bytes, $_->{offset}, $_->{size}
	  for struct_fields($struct);
	return \%values;
}

# Returns the raw bytes of a struct with one field changed.
sub set_field
{
	my ($struct, $bytes, $name, $value) = @_;
	my ($field) = grep { $_->{name} eq $name } struct_fields($struct);

	croak "no field $name in $struct" if !defined $field;
	substr($bytes, $field->{offset}, $field->{size},
		pack($field->{template}, $value));
	return $bytes;
}

1;
