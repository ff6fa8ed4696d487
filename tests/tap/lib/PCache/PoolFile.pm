
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

PCache::PoolFile - what does a pool file hold, byte by byte?

=head1 DESCRIPTION

For tests that look at a pool that no server uses, or forge one.  $pool is the
path of the pool file, $at and $offset are in bytes from its start, $slot counts
from 0.  What is written gets a right CRC, unless a sub says otherwise.

=cut

package PCache::PoolFile;

use strict;
use warnings FATAL => 'all';

use Carp;
use Exporter 'import';
use Fcntl qw(SEEK_SET);
use PCache::Layout qw(:DEFAULT unpack_fields set_field);

our @EXPORT = qw(
  read_bytes
  write_bytes
  read_superblock
  patch_superblock
  damage_superblock
  read_descriptor
  write_descriptor
  sealed_slots
  pool_entries
  read_sighting
  patch_sighting
);

# So many bytes of any file, from an offset on.  Dies if there are fewer.
sub read_bytes
{
	my ($path, $offset, $length) = @_;
	my $bytes;

	open my $fh, '<:raw', $path or croak "could not open $path: $!";
	sysseek $fh, $offset, SEEK_SET or croak "could not seek in $path: $!";
	(sysread($fh, $bytes, $length) // -1) == $length
	  or croak "could not read $length bytes of $path";
	close $fh;
	return $bytes;
}

# Store bytes in any file, which must exist.
sub write_bytes
{
	my ($path, $offset, $bytes) = @_;

	open my $fh, '+<:raw', $path or croak "could not open $path: $!";
	sysseek $fh, $offset, SEEK_SET or croak "could not seek in $path: $!";
	(syswrite($fh, $bytes) // -1) == length $bytes
	  or croak "could not write $path: $!";
	close $fh or croak "could not close $path: $!";
	return;
}

# The fields of a superblock: a reference to a hash, by name.  It is the first
# one, or the one at the offset given.
sub read_superblock
{
	my ($pool, $at) = @_;
	return unpack_fields('PCacheSuperblock',
		read_bytes($pool, $at // 0, SUPERBLOCK_SIZE));
}

# Change fields in both superblocks, each with a right CRC: name => value.  A
# value may be code, which gets the old one.
sub patch_superblock
{
	my ($pool, %changes) = @_;
	my $bytes = read_bytes($pool, 0, SUPERBLOCK_SIZE);
	my $old = unpack_fields('PCacheSuperblock', $bytes);
	my ($crc) = grep { $_->{name} eq 'crc' } struct_fields('PCacheSuperblock');

	for my $name (sort keys %changes)
	{
		my $value = $changes{$name};

		$value = $value->($old->{$name}) if ref $value eq 'CODE';
		$bytes = set_field('PCacheSuperblock', $bytes, $name, $value);
	}
	$bytes = set_field('PCacheSuperblock', $bytes, 'crc',
		crc32c(substr $bytes, 0, $crc->{offset}));
	write_bytes($pool, $_, $bytes) for 0, COPY_OFFSET;
	return;
}

# Flip a bit in one byte of a field, in the superblocks at these offsets.  Their
# CRCs are wrong afterwards.
sub damage_superblock
{
	my ($pool, $field, @offsets) = @_;
	my ($f) = grep { $_->{name} eq $field } struct_fields('PCacheSuperblock');

	croak "no field $field in the superblock" if !defined $f;
	for (@offsets)
	{
		my $byte = read_bytes($pool, $_ + $f->{offset}, 1);
		write_bytes($pool, $_ + $f->{offset}, chr(ord($byte) ^ 0x40));
	}
	return;
}

# The fields of a descriptor: a reference to a hash, by name.
sub read_descriptor
{
	my ($pool, $slot) = @_;
	return unpack_fields('PCacheDescriptor',
		read_bytes($pool, DESCRIPTORS_OFFSET + $slot * DESCRIPTOR_SIZE,
			DESCRIPTOR_SIZE));
}

# Change fields of a descriptor: name => value.  The CRC is made right, unless
# crc is among them.
sub write_descriptor
{
	my ($pool, $slot, %changes) = @_;
	my $offset = DESCRIPTORS_OFFSET + $slot * DESCRIPTOR_SIZE;
	my $bytes = read_bytes($pool, $offset, DESCRIPTOR_SIZE);

	$bytes = set_field('PCacheDescriptor', $bytes, $_, $changes{$_})
	  for sort keys %changes;
	$bytes = set_field('PCacheDescriptor', $bytes, 'crc',
		crc32c(substr $bytes, 8, DESCRIPTOR_SIZE - 12))
	  if !exists $changes{crc};
	write_bytes($pool, $offset, $bytes);
	return;
}

# The slots that have an entry, in order; with a filter, those for
# whose descriptor it returns true.
sub sealed_slots
{
	my ($pool, $filter) = @_;
	my $n = read_superblock($pool)->{slots_used};
	my $bytes = read_bytes($pool, DESCRIPTORS_OFFSET, $n * DESCRIPTOR_SIZE);
	my @slots;

	for my $slot (0 .. $n - 1)
	{
		my $raw = substr $bytes, $slot * DESCRIPTOR_SIZE, DESCRIPTOR_SIZE;

		next if unpack('Q', $raw) & 1;
		next
		  if defined $filter
		  && !$filter->(unpack_fields('PCacheDescriptor', $raw));
		push @slots, $slot;
	}
	return @slots;
}

# The entries of a pool: a list of references to hashes, by field.
sub pool_entries
{
	my ($pool) = @_;
	my @fields = grep { $_->{name} !~ /^reserved/ } struct_fields('PCacheDescriptor');
	my @names = map { $_->{name} } @fields;
	my $template = join ' ', map { "\@$_->{offset} $_->{template}" } @fields;
	my $n = read_superblock($pool)->{slots_used};
	my $bytes = read_bytes($pool, DESCRIPTORS_OFFSET, $n * DESCRIPTOR_SIZE);
	my @entries;

	for my $slot (0 .. $n - 1)
	{
		my %entry;

		@entry{@names} = unpack $template, substr $bytes, $slot * DESCRIPTOR_SIZE, DESCRIPTOR_SIZE;
		push @entries, \%entry if ($entry{seq} & 1) == 0;
	}
	return @entries;
}

# What the server of a pool has last seen, as bytes, and where in the pool they are.
sub sighting_slot
{
	my ($pool) = @_;
	my @slots = map { [ SIGHTING_OFFSET + $_ * SIGHTING_SIZE, read_bytes($pool, SIGHTING_OFFSET + $_ * SIGHTING_SIZE, SIGHTING_SIZE) ] } 0, 1;

	return @{ (sort { unpack('Q', $b->[1]) <=> unpack('Q', $a->[1]) } @slots)[0] };
}

# The fields of it: a reference to a hash, by name.
sub read_sighting
{
	my ($pool) = @_;
	my ($at, $bytes) = sighting_slot($pool);

	return unpack_fields('PCacheSighting', $bytes);
}

# Change fields of it: name => value.
sub patch_sighting
{
	my ($pool, %changes) = @_;
	my ($at, $bytes) = sighting_slot($pool);
	my ($crc) = grep { $_->{name} eq 'crc' } struct_fields('PCacheSighting');

	$bytes = set_field('PCacheSighting', $bytes, $_, $changes{$_}) for sort keys %changes;
	$bytes = set_field('PCacheSighting', $bytes, 'crc', crc32c(substr $bytes, 0, $crc->{offset}));
	write_bytes($pool, $at, $bytes);
	return;
}

1;
